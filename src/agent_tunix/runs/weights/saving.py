"""Checkpoints written beside the run: the step waits for a copy of the arrays, and the disk works while it goes on.

At most one is under way; the next waits for it, and so does the end of the run. A checkpoint has its name only when
what went out before it, rows and rollouts, is on its way to the disk, so that a resumed run never lacks them. Several
processes write a checkpoint together, and wait for it: none may begin another step meanwhile.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from agent_tunix.runs.weights.checkpoints import Checkpoints, State
from agent_tunix.tracking.background import Annotate, Background


class CheckpointSaver(Background):
    """Writes the checkpoints of a run, one after the other.

    Args:
        checkpoints: Where they go.
        annotate: Names what its thread does, for a trace.
    """

    def __init__(self, checkpoints: Checkpoints, annotate: Annotate) -> None:
        # One checkpoint, which `save` sees to, and that it is the best.
        super().__init__("checkpoints", 2, annotate)
        self._checkpoints = checkpoints

    def save(self, step: int, state: State, metadata: dict[str, Any], after: Callable[[], object]) -> None:
        """Begin to write a checkpoint, once the one before is written.

        Args:
            step: Of the checkpoint.
            state: What it holds; the arrays may be donated as soon as this returns.
            metadata: As `Checkpoints.save` takes it; not to be changed afterwards.
            after: Called before anything is written.

        Raises:
            CheckpointError: The one before could not be written.
        """
        self.flush()
        kept = state if _several_processes() else _copied(state)

        def write() -> None:
            after()
            self._checkpoints.save(step, kept, metadata)

        self._begin("checkpoint", write)

    def mark_best(self, step: int) -> None:
        """Say that the checkpoint of a step is the best, once it is written."""
        self._begin("best", lambda: self._checkpoints.mark_best(step))

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        if _several_processes():
            work()
        else:
            self.submit(name, work)


def _several_processes() -> bool:
    """Whether others take part in writing, whom this one must not go on without."""
    return int(jax.process_count()) > 1


def _copied(state: State) -> Mapping[str, Mapping[str, Any]]:
    """The state in host memory, apart from arrays that the next update overwrites."""
    for array in jax.tree.leaves(state):
        array.copy_to_host_async()
    return {part: {name: np.array(array) for name, array in arrays.items()} for part, arrays in state.items()}
