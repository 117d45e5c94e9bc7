"""Checkpoints written in the background: a step waits for a copy of its arrays, not for the disk.

At most one checkpoint is being written. The next one waits for it, and so does the end of the run. A checkpoint is
written after the rows and rollouts of the steps before it, so that a resumed run never lacks them. Several processes
write a checkpoint together in the foreground, because none of them may begin another step meanwhile.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from agent_tunix.runs.weights.checkpoints import NO_FILES, Checkpoints, State
from agent_tunix.tracking.background import Annotate, Background


class CheckpointSaver(Background):
    """Background writer of the checkpoints of a run, one after the other.

    Args:
        checkpoints: The checkpoints of the run.
        annotate: Names the work of the thread in a profiler's trace.
    """

    def __init__(self, checkpoints: Checkpoints, annotate: Annotate) -> None:
        # Room for two tasks: one checkpoint, as `save` ensures, and its mark as the best.
        super().__init__("checkpoints", 2, annotate)
        self._checkpoints = checkpoints

    def save(
        self,
        step: int,
        state: State,
        metadata: dict[str, Any],
        after: Callable[[], object],
        measured: contextlib.AbstractContextManager[None] | None = None,
        then: Callable[[], object] = lambda: None,
        files: Callable[[], Mapping[str, bytes]] | None = None,
    ) -> None:
        """Wait for the previous checkpoint, then begin to write this one.

        Args:
            step: Step of the checkpoint.
            state: Arrays of the checkpoint. They may be donated as soon as this returns.
            metadata: Metadata for `Checkpoints.save`. The caller must not change it afterwards.
            after: Called before anything is written; it waits for the rows and rollouts.
            measured: Context in which the checkpoint is written, after that.
            then: Called after the checkpoint is complete.
            files: Called after `after`; returns further files for `Checkpoints.save`, perhaps after it has waited.

        Raises:
            CheckpointError: The previous checkpoint could not be written.
        """
        self.flush()
        kept = state if _several_processes() else _copied(state)

        def write() -> None:
            after()
            further = NO_FILES if files is None else files()
            with measured or contextlib.nullcontext():
                self._checkpoints.save(step, kept, metadata, further)
            then()

        self._begin("checkpoint", write)

    def mark_best(self, step: int) -> None:
        """Mark the checkpoint of a step as the best, after it is written."""
        self._begin("best", lambda: self._checkpoints.mark_best(step))

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        if _several_processes():
            work()
        else:
            self.submit(name, work)


def _several_processes() -> bool:
    """Return True if several processes write a checkpoint together."""
    return int(jax.process_count()) > 1


def _copied(state: State) -> Mapping[str, Mapping[str, Any]]:
    """Return a copy of the state in host memory, which the next update cannot overwrite."""
    for array in jax.tree.leaves(state):
        array.copy_to_host_async()
    return {part: {name: np.array(array) for name, array in arrays.items()} for part, arrays in state.items()}
