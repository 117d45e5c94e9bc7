"""Checkpoints are whole or absent: what was saved comes back bit for bit, and what is damaged is passed over."""

import hashlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.errors import CheckpointError
from agent_tunix.runs.weights.checkpoints import Checkpoints
from tests.raising import raises


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


def test_special_values_survive(checkpoints: Checkpoints) -> None:
    odd = jnp.array([-0.0, jnp.inf, jnp.nan, 1e-45, 3.4e38], jnp.float32)
    checkpoints.save(1, {"weights": {"odd": odd}}, {})
    restored = checkpoints.restore(1, {"weights": {"odd": jnp.zeros(5)}})
    assert np.asarray(restored.state["weights"]["odd"]).tobytes() == np.asarray(odd).tobytes()


def test_a_missing_step_names_those_that_exist(checkpoints: Checkpoints) -> None:
    save(checkpoints, 5, 10)
    with raises(CheckpointError, "no_such_checkpoint") as caught:
        checkpoints.restore(7, make_state(0))
    assert "[5, 10]" in str(caught.value)


def test_only_the_newest_are_kept_and_later_ones_can_be_removed(checkpoints: Checkpoints, directory: Path) -> None:
    """Files of other names are no checkpoints."""
    save(checkpoints, 5)
    (directory / "step_best").mkdir()
    (directory / "notes.txt").write_text("mine")
    assert checkpoints.steps() == [5]
    save(checkpoints, 10, 15, 20, 25)
    assert checkpoints.steps() == [15, 20, 25]
    checkpoints.remove_after(15)
    assert checkpoints.steps() == [15]
    assert (directory / "notes.txt").exists()


def test_steps_beyond_six_digits_stay_in_order(checkpoints: Checkpoints) -> None:
    save(checkpoints, 999_999, 1_000_000)
    assert_restores(checkpoints, 1_000_000)


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


SAVED_AND_KILLED = """
import os, signal, sys
from pathlib import Path
import jax.numpy as jnp
from agent_tunix.runs.weights.checkpoints import Checkpoints
Checkpoints(Path(sys.argv[1]), 3).save(5, {"weights": {"w": jnp.arange(2000.0)}}, {})
print("saved", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_checkpoint_is_whole_when_the_process_is_killed_right_after_saving(directory: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SAVED_AND_KILLED, directory], capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"saved\n", -signal.SIGKILL), done.stderr
    restored = Checkpoints(directory, 3).restore_latest({"weights": {"w": jnp.zeros(2000)}})
    assert restored is not None
    np.testing.assert_array_equal(restored.state["weights"]["w"], np.arange(2000.0))


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


def truncate(path: Path) -> None:
    file = largest(path)
    file.write_bytes(file.read_bytes()[:-10])


def flip(path: Path) -> None:
    content = bytearray(largest(path).read_bytes())
    content[len(content) // 2] ^= 1
    largest(path).write_bytes(content)


def alter_metadata(path: Path) -> None:
    metadata = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps({**metadata, "data": "other"}))


def empty(path: Path) -> None:
    for file in [*path.rglob("*")]:
        if file.is_file():
            file.unlink()


def link(path: Path) -> None:
    file = largest(path)
    file.rename(path.parent / "elsewhere")
    file.symlink_to(path.parent / "elsewhere")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "flipped": flip,
    "removed": lambda path: largest(path).unlink(),
    "added": lambda path: (path / "weights" / "extra").write_text(""),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "garbled manifest": lambda path: (path / "manifest.json").write_text("[1,"),
    "list as manifest": lambda path: (path / "manifest.json").write_text("[]"),
    "altered metadata": alter_metadata,
    "emptied": empty,
    "a link to the same file": link,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_newest_falls_back_to_the_one_before_with_a_warning(
    checkpoints: Checkpoints, directory: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    save(checkpoints, 5, 10)
    damage(directory / "step_000010")
    with caplog.at_level(logging.WARNING, "agent_tunix.checkpoints"):
        assert_restores(checkpoints, 5)
    assert "step_000010 is damaged" in caplog.text
    assert "trying the previous one" in caplog.text


def sign_off(step: Path) -> None:
    """Write a manifest that is true, as a stranger who changes a checkpoint does."""
    files = (path for path in step.rglob("*") if path.is_file() and path != step / "manifest.json")
    digests = {path.relative_to(step).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (step / "manifest.json").write_text(json.dumps(digests))


def give_other_shapes(step: Path) -> None:
    shutil.rmtree(step / "weights")
    larger = {"['layer']['w']": jnp.zeros((64, 34)), "['layer']['b']": jnp.zeros(7, jnp.bfloat16)}
    Checkpoints(step.parent / "other", 1).save(1, {"weights": larger}, {})
    (step.parent / "other" / "step_000001" / "weights").rename(step / "weights")


@pytest.mark.parametrize(
    "lie",
    [
        lambda step: (step / "metadata.json").write_text("{"),
        lambda step: (step / "metadata.json").write_text("[1]"),
        lambda step: (step / "metadata.json").write_text("[" * 200_000),
        lambda step: (step / "weights" / "_METADATA").write_text("[" * 200_000),
        lambda step: (step / "weights" / "_METADATA").write_text("[]"),
        lambda step: (step / "weights" / "_METADATA").write_text('{"tree_metadata": {}, "use_ocdbt": false}'),
        give_other_shapes,
    ],
)
def test_a_checkpoint_that_lies_is_an_error_of_ours(
    lie: Callable[[Path], object], checkpoints: Checkpoints, directory: Path
) -> None:
    save(checkpoints, 1)
    lie(directory / "step_000001")
    sign_off(directory / "step_000001")
    with pytest.raises(CheckpointError):
        checkpoints.restore_latest(make_state(0))


def test_names_that_are_no_steps_are_passed_over(checkpoints: Checkpoints, directory: Path) -> None:
    save(checkpoints, 1)
    for name in ("step_²", "step_-1", "step_", "step_1e9"):
        (directory / name).mkdir()
    assert checkpoints.steps() == [1]


def test_all_damaged_is_an_error_that_says_what_to_do(checkpoints: Checkpoints, directory: Path) -> None:
    save(checkpoints, 5, 10)
    flip(directory / "step_000005")
    truncate(directory / "step_000010")
    with raises(CheckpointError, "checkpoint_damaged") as caught:
        checkpoints.restore_latest(make_state(0))
    assert re.search(r"(?s)step_000010.*step_000005.*Remove", str(caught.value))
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
def test_another_models_checkpoint_does_not_fit_and_is_not_called_damaged(
    checkpoints: Checkpoints, other: dict[str, dict[str, jax.Array]]
) -> None:
    save(checkpoints, 5)
    with raises(CheckpointError, "checkpoint_mismatch"):
        checkpoints.restore_latest(other)


# Disks.


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises(CheckpointError, "checkpoint_not_written") as caught:
        save(Checkpoints(tmp_path / "file" / "checkpoints", 2), 5)
    assert "training.checkpoint_dir" in str(caught.value)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Half a mebibyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_is_an_error_that_leaves_older_checkpoints_whole(small_disk: Path) -> None:
    checkpoints = Checkpoints(small_disk, 3)
    save(checkpoints, 5)
    (small_disk / "filling").write_bytes(bytes(small_disk.stat().st_blksize))
    with (small_disk / "filling").open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    with raises(CheckpointError, "checkpoint_not_written") as caught:
        save(checkpoints, 10)
    assert "([5])" in str(caught.value)
    assert [path.name for path in small_disk.glob("*step*")] == ["step_000005"]
    assert_restores(checkpoints, 5)
    (small_disk / "filling").unlink()
    save(checkpoints, 10)
    assert_restores(checkpoints, 10)


LIMITED = """
import resource, sys
from pathlib import Path
import jax.numpy as jnp
from agent_tunix.errors import CheckpointError
from agent_tunix.runs.weights.checkpoints import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]), 3)
small = {"weights": {"w": jnp.ones(8)}}
checkpoints.save(5, small, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoints.save(10, {"weights": {"w": jnp.arange(200_000.0)}}, {})
except CheckpointError as error:
    print(checkpoints.restore_latest(small).step, error)
"""


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_an_error_that_leaves_older_checkpoints_whole(tmp_path: Path) -> None:
    """The same as a full disk, where none can be mounted."""
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("5 the checkpoint of step 10 cannot be written"), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob(".step*"))
