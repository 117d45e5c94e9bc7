"""Checkpoints written beside a run."""

import contextlib
import threading
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


def state(value: float) -> dict[str, dict[str, jax.Array]]:
    return {
        "weights": {"w": jnp.full((4, 3), value), "half": jnp.full(5, value, jnp.bfloat16)},
        "optimizer": {"step": jnp.uint32(7), "mu": jnp.full((4, 3), -value)},
    }


def nothing() -> None:
    pass


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", 3)


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
        with raises(CheckpointError, "checkpoint_not_written") as caught:
            next_step()
        assert "step 1" in str(caught.value)
    saver.close()


def test_a_checkpoint_is_the_best_once_it_is_there(checkpoints: Checkpoints) -> None:
    gate = threading.Event()
    with CheckpointSaver(checkpoints, contextlib.nullcontext) as saver:
        saver.save(1, state(1.0), {}, after=gate.wait)
        saver.mark_best(1)
        assert checkpoints.best_step() is None
        gate.set()
    assert checkpoints.best_step() == 1
