"""Code of the user that a run calls around its steps. Importing this module does not load JAX.

Callbacks are called in the first process of a run, in the thread that trains, in their order. They see what the run
records and cannot change it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class TrainingState:
    """The state of a run, as callbacks see it.

    Attributes:
        directory: Directory of the run.
        max_steps: Number of steps of the whole run.
        step: Steps done so far.
        reason_to_stop: Why a callback asked the run to stop; None if none did.
    """

    directory: Path
    max_steps: int
    step: int = 0
    reason_to_stop: str | None = None

    def stop(self, reason: str = "a callback asked for it") -> None:
        """Ask the run to stop after this step. It saves a checkpoint, writes its report and counts as finished."""
        self.reason_to_stop = reason


class Callback:
    """Base class of callbacks. Override the methods that you need.

    An exception in a method ends the run; the checkpoint of the last step is saved.
    """

    def on_train_begin(self, state: TrainingState) -> None:
        """Do something before the first evaluation or step."""

    def on_step_begin(self, state: TrainingState) -> None:
        """Do something before a step, when `state.step` steps are done."""

    def on_evaluate(self, state: TrainingState, metrics: Mapping[str, Any]) -> None:
        """Do something after an evaluation, with its metrics under `eval/`."""

    def on_checkpoint(self, state: TrainingState) -> None:
        """Do something when the checkpoint of step `state.step` is taken. It is written in the background."""

    def on_step(self, state: TrainingState, metrics: Mapping[str, Any]) -> None:
        """Do something after a step, its evaluation and its checkpoint, with its row of `metrics.jsonl`."""

    def on_train_end(self, state: TrainingState) -> None:
        """Do something when the run has taken its last step and written everything."""


class Callbacks:
    """The callbacks of a run.

    Args:
        callbacks: The callbacks, in the order of their calls.
        directory: Directory of the run.
        max_steps: Number of steps of the whole run.
    """

    def __init__(self, callbacks: Sequence[Callback], directory: Path, max_steps: int) -> None:
        self._callbacks = tuple(callbacks)
        self._state = TrainingState(directory, max_steps)

    @property
    def reason_to_stop(self) -> str | None:
        """Why a callback asked the run to stop; None if none did."""
        return self._state.reason_to_stop

    def call(self, event: str, step: int, *arguments: Any) -> None:
        """Call a method of each callback, such as `on_step`, when `step` steps are done."""
        self._state.step = step
        for callback in self._callbacks:
            getattr(callback, event)(self._state, *arguments)
