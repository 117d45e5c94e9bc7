"""Checkpoints are whole or absent, in the run and beside it: what was saved comes back, what is damaged does not."""

import contextlib
import logging
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.errors import CheckpointError
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.runs.weights.saving import CheckpointSaver
from tests.raising import raises
from tests.tiers import in_tiers


def make_state(seed: int) -> dict[str, dict[str, jax.Array]]:
    key = jax.random.key(seed)
    return {
        "weights": {
            "['layer']['w']": jax.random.normal(key, (64, 33)),
            "['layer']['b']": jax.random.normal(key, (7,), jnp.bfloat16),
        },
        "optimizer": {"['count']": jnp.uint32(seed), "['mu']": jnp.zeros((64, 33)) + jnp.pi * seed},
    }


def assert_restores(checkpoints: Checkpoints, step: int) -> None:
    """The newest whole checkpoint is that of `step`, bit for bit, with its metadata."""
    restored = checkpoints.restore_latest(make_state(0))
    assert restored is not None
    assert restored.step == step
    assert restored.metadata == {"step": step, "seed": 7, "data": "abc"}
    expected = make_state(step)
    for part, arrays in expected.items():
        assert restored.state[part].keys() == arrays.keys()
        for name, array in arrays.items():
            found = restored.state[part][name]
            assert found.dtype == array.dtype
            assert np.asarray(found).tobytes() == np.asarray(array).tobytes()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(directory, max_to_keep=3)


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.save(step, make_state(step), {"seed": 7, "data": "abc"})


def test_what_is_restored_is_what_was_saved_last_bit_for_bit(checkpoints: Checkpoints) -> None:
    assert checkpoints.restore_latest(make_state(0)) is None
    assert checkpoints.steps() == []
    checkpoints.save(5, make_state(1), {})
    save(checkpoints, 5)
    assert_restores(checkpoints, 5)
    assert checkpoints.restore(5, {"weights": make_state(0)["weights"]}).state.keys() == {"weights"}


def test_a_damaged_mark_of_the_best_costs_no_checkpoint(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is repaired when the run is resumed; until then, any checkpoint could be the best."""
    checkpoints = Checkpoints(directory, max_to_keep=1)
    save(checkpoints, 5)
    (directory / "best.json").write_text("")
    with caplog.at_level(logging.WARNING, "agent_tunix.checkpoints"):
        save(checkpoints, 10)
    assert "All checkpoints are kept" in caplog.text
    assert checkpoints.steps() == [5, 10]
    checkpoints.repair_best(None)
    assert checkpoints.best_step() is None
    checkpoints.repair_best(5)
    save(checkpoints, 15)
    assert checkpoints.steps() == [5, 15]


def test_checkpoints_of_another_directory_are_read_and_stay(tmp_path: Path, directory: Path) -> None:
    save(Checkpoints(tmp_path / "before", 3), 5, 10)
    checkpoints = Checkpoints(directory, 1, earlier=[tmp_path / "before", tmp_path / "nowhere"])
    assert checkpoints.steps() == [5, 10]
    assert_restores(checkpoints, 10)
    save(checkpoints, 10, 15)
    assert Checkpoints(directory, 1).steps() == [15]
    assert checkpoints.steps() == [5, 10, 15]


def test_a_limit_on_their_size_removes_the_oldest_but_neither_the_best_nor_the_last(directory: Path) -> None:
    save(Checkpoints(directory, 9), 5)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    checkpoints = Checkpoints(directory, 9, max_bytes=3.5 * size)
    checkpoints.mark_best(5)
    save(checkpoints, 10, 15)
    assert checkpoints.steps() == [5, 10, 15]
    save(checkpoints, 20)
    assert checkpoints.steps() == [5, 15, 20]
    save(Checkpoints(directory, 9, max_bytes=size / 2), 25)
    assert checkpoints.steps() == [5, 25]


def test_a_missing_step_names_those_that_exist(checkpoints: Checkpoints) -> None:
    save(checkpoints, 5, 10)
    with raises(CheckpointError, "no_checkpoint", "[5, 10]"):
        checkpoints.restore(7, make_state(0))


def test_only_the_newest_are_kept_and_later_ones_can_be_removed(checkpoints: Checkpoints, directory: Path) -> None:
    """Files of other names are no checkpoints."""
    save(checkpoints, 5)
    for name in ("step_best", "step_²", "step_-1", "step_", "step_1e9"):
        (directory / name).mkdir()
    (directory / "notes.txt").write_text("mine")
    assert checkpoints.steps() == [5]
    save(checkpoints, 10, 15, 20, 25)
    assert checkpoints.steps() == [15, 20, 25]
    checkpoints.remove_after(15)
    assert checkpoints.steps() == [15]
    assert (directory / "notes.txt").exists()


def test_a_checkpoint_left_half_written_is_no_checkpoint(checkpoints: Checkpoints, directory: Path) -> None:
    """A kill leaves it under another name; the next save, of whichever step, removes it."""
    save(checkpoints, 5)
    for step in (7, 10):
        partial = directory / f".step_{step:06d}.partial"
        partial.mkdir()
        (partial / "metadata.json").write_text("{")
    assert checkpoints.steps() == [5]
    assert_restores(checkpoints, 5)
    save(checkpoints, 10)
    assert sorted(path.name for path in directory.iterdir()) == ["step_000005", "step_000010"]
    assert_restores(checkpoints, 10)


def test_a_checkpoint_gets_its_name_when_the_device_has_all_of_it_and_then_the_name_too(
    checkpoints: Checkpoints, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    before_renaming: set[int] = set()
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor: int) -> None:
        real_sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def replace(source: Path, target: Path) -> None:
        before_renaming.update(synced)
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    save(checkpoints, 5)
    final = directory / "step_000005"
    assert {path.stat().st_ino for path in (final, *final.rglob("*"))} <= before_renaming
    assert synced[-1] == directory.stat().st_ino


# Damage.


def largest(path: Path) -> Path:
    return max((file for file in path.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)


def flip(path: Path) -> None:
    content = bytearray(largest(path).read_bytes())
    content[len(content) // 2] ^= 1
    largest(path).write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "removed": lambda path: largest(path).unlink(),
    "added": lambda path: (path / "weights" / "extra").write_text(""),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "garbled manifest": lambda path: (path / "manifest.json").write_text("[1,"),
    "list as manifest": lambda path: (path / "manifest.json").write_text("[]"),
    "altered metadata": lambda path: (path / "metadata.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", in_tiers(DAMAGES, "flipped", "removed"))
def test_a_damaged_newest_falls_back_to_the_one_before_with_a_warning(
    checkpoints: Checkpoints, directory: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    save(checkpoints, 5, 10)
    damage(directory / "step_000010")
    with caplog.at_level(logging.WARNING, "agent_tunix.checkpoints"):
        assert_restores(checkpoints, 5)
    assert "step_000010 is damaged" in caplog.text
    assert "trying the previous one" in caplog.text


def test_all_damaged_is_an_error_that_says_what_to_do(checkpoints: Checkpoints, directory: Path) -> None:
    save(checkpoints, 5, 10)
    flip(directory / "step_000005")
    flip(directory / "step_000010")
    with raises(CheckpointError, "checkpoint_damaged") as caught:
        checkpoints.restore_latest(make_state(0))
    assert re.search(r"(?s)step_000010.*step_000005.*another hydra.run.dir", str(caught.value))
    with raises(CheckpointError, "checkpoint_damaged"):
        checkpoints.restore(5, make_state(0))


# Not damaged, but of another model.


@pytest.mark.parametrize(
    "other",
    [
        {"weights": {"['layer']['w']": jnp.zeros((64, 34)), "['layer']['b']": jnp.zeros(7, jnp.bfloat16)}},
        {"weights": {"['layer']['w']": jnp.zeros((64, 33)), "['layer']['lora']": jnp.zeros(7, jnp.bfloat16)}},
        {"weights": {"['layer']['w']": jnp.zeros((64, 33))}},
        {"reference": {"x": jnp.zeros(1)}},
    ],
    ids=["shape", "name", "fewer", "part"],
)
def test_a_checkpoint_of_another_model(checkpoints: Checkpoints, other: dict[str, dict[str, jax.Array]]) -> None:
    save(checkpoints, 5)
    with raises(CheckpointError, "checkpoint_mismatch"):
        checkpoints.restore_latest(other)


# Disks.


def test_a_full_disk_leaves_older_checkpoints_whole(checkpoints: Checkpoints, directory: Path) -> None:
    large = {"weights": {"w": jnp.arange(200_000.0)}}
    save(checkpoints, 5)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with raises(CheckpointError, "checkpoint_not_written") as caught:
            checkpoints.save(10, large, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value).startswith("File too large: the checkpoint of step 10 cannot be written")
    assert "It takes about 0.8 MB" in str(caught.value)
    assert "training.checkpoint_dir" in str(caught.value)
    assert "([5])" in str(caught.value)
    assert [path.name for path in directory.iterdir()] == ["step_000005"]
    assert_restores(checkpoints, 5)
    save(checkpoints, 10)
    assert_restores(checkpoints, 10)


LIMITED = """
import os, resource, sys
from pathlib import Path
import jax.numpy as jnp
from agent_tunix.errors import CheckpointError
from agent_tunix.runs.weights.checkpoints import Checkpoints
limit = len(os.listdir("/proc/self/fd")) + 6
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    Checkpoints(Path(sys.argv[1]), 3).save(5, {"weights": {"w": jnp.arange(200_000.0)}}, {})
except CheckpointError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_limit_on_open_files_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Too many open files: the checkpoint of step 5 cannot be written to {tmp_path}. ")
    assert "`ulimit -n 65536`" in done.stdout


# Beside the run.


def state(value: float) -> dict[str, dict[str, jax.Array]]:
    return {
        "weights": {"w": jnp.full((4, 3), value), "half": jnp.full(5, value, jnp.bfloat16)},
        "optimizer": {"step": jnp.uint32(7), "mu": jnp.full((4, 3), -value)},
    }


def nothing() -> None:
    pass


def test_what_is_saved_beside_the_run_is_what_comes_back(checkpoints: Checkpoints) -> None:
    with CheckpointSaver(checkpoints, contextlib.nullcontext) as saver:
        saver.save(5, state(1.5), {"seed": 3}, after=nothing)
    restored = checkpoints.restore(5, jax.tree.map(jnp.zeros_like, state(0.0)))
    assert restored.metadata["seed"] == 3
    jax.tree.map(np.testing.assert_array_equal, restored.state, state(1.5))
    kinds = jax.tree.map(lambda array: (str(array.dtype), type(array).__name__, array.shape), restored.state)
    assert kinds == jax.tree.map(lambda array: (str(array.dtype), type(array).__name__, array.shape), state(1.5))


def test_arrays_may_be_overwritten_as_soon_as_saving_has_begun(checkpoints: Checkpoints) -> None:
    gate = threading.Event()
    overwrite: Any = jax.jit(lambda arrays: jax.tree.map(lambda array: array * 0 + 9, arrays), donate_argnums=0)
    with CheckpointSaver(checkpoints, contextlib.nullcontext) as saver:
        arrays = state(1.5)
        saver.save(5, arrays, {}, after=gate.wait)
        jax.tree.leaves(overwrite(arrays))[0].block_until_ready()
        gate.set()
    restored = checkpoints.restore(5, jax.tree.map(jnp.zeros_like, state(0.0)))
    jax.tree.map(np.testing.assert_array_equal, restored.state, state(1.5))


def test_the_run_goes_on_while_it_is_written_and_the_next_one_waits(checkpoints: Checkpoints) -> None:
    gate = threading.Event()
    with CheckpointSaver(checkpoints, contextlib.nullcontext) as saver:
        saver.save(1, state(1.0), {}, after=gate.wait)
        assert checkpoints.steps() == []
        second = threading.Thread(target=lambda: saver.save(2, state(2.0), {}, after=nothing))
        second.start()
        assert checkpoints.steps() == []
        gate.set()
        second.join()
    assert checkpoints.steps() == [1, 2]


def test_nothing_is_written_before_what_comes_before_it(checkpoints: Checkpoints) -> None:
    def fail() -> None:
        raise OSError("the row could not be written")

    saver = CheckpointSaver(checkpoints, contextlib.nullcontext)
    saver.save(1, state(1.0), {}, after=fail)
    with pytest.raises(OSError, match="the row"):
        saver.close()
    assert checkpoints.steps() == []


@pytest.mark.parametrize("by_barrier", [True, False])
def test_a_checkpoint_that_cannot_be_written_stops_the_run_at_its_next_step(tmp_path: Path, by_barrier: bool) -> None:
    (tmp_path / "file").write_text("")
    saver = CheckpointSaver(Checkpoints(tmp_path / "file" / "checkpoints", 3), contextlib.nullcontext)
    saver.save(1, state(1.0), {}, after=nothing)
    next_steps = (
        [saver.barrier(), saver.check] if by_barrier else [lambda: saver.save(2, state(2.0), {}, after=nothing)]
    )
    for next_step in next_steps:
        with raises(CheckpointError, "checkpoint_not_written", "step 1"):
            next_step()
    saver.close()


def test_a_checkpoint_is_the_best_once_it_is_there(checkpoints: Checkpoints) -> None:
    gate = threading.Event()
    with CheckpointSaver(checkpoints, contextlib.nullcontext) as saver:
        saver.save(1, state(1.0), {}, after=gate.wait)
        saver.mark_best(1)
        assert checkpoints.best_step() is None
        gate.set()
    assert checkpoints.best_step() == 1
