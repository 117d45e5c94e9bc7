"""What a run tells of itself as it goes: rows, completions, findings; of several processes, one tells."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from agent_tunix.config.schema import Config
from agent_tunix.grpo.step import StepResult
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.watching import Watching
from agent_tunix.startup.profiling import phase
from agent_tunix.tracking import Recorder
from agent_tunix.tracking.rollouts import StoredStep
from agent_tunix.workbench.diagnosis import RunContext


class RunReporter(Protocol):
    """Hears what the steps of a run come to."""

    def record(self, step: int, row: Mapping[str, Any], result: StepResult | None = None) -> None:
        """Take the row of a step, which must not be changed afterwards."""

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        """Take the completions of a step; what is to be added to its row."""

    def barrier(self) -> Callable[[], None]:
        """A function that returns, in any thread, when all that was told before is on its way to the disk."""

    def summary(self) -> dict[str, str]:
        """What the last table of the run says of the findings."""


class _Loud:
    """Sends rows to files, trackers, the terminal and the diagnosis."""

    def __init__(self, recorder: Recorder, watching: Watching) -> None:
        self._recorder, self._watching = recorder, watching

    def record(self, step: int, row: Mapping[str, Any], result: StepResult | None = None) -> None:
        self._recorder.record(step, row, also=lambda: self._watching.observe(step, row, result))

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        return self._recorder.store(make())

    def barrier(self) -> Callable[[], None]:
        return self._recorder.barrier()

    def summary(self) -> dict[str, str]:
        return self._watching.summary()


class SilentReporter:
    """Says nothing: another process does."""

    def record(self, step: int, row: Mapping[str, Any], result: StepResult | None = None) -> None:
        """Leave it."""

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        """Leave them."""
        return {}

    def barrier(self) -> Callable[[], None]:
        """There is nothing to wait for."""
        return lambda: None

    def summary(self) -> dict[str, str]:
        """Nothing."""
        return {}


@contextlib.contextmanager
def open_teller(
    config: Config, context: RunContext, places: RunPaths, max_steps: int, kept_step: int | None
) -> Iterator[RunReporter]:
    """Open everything that hears of the run.

    Args:
        config: The run's.
        context: What a diagnosis must know of it.
        places: Where it leaves things.
        max_steps: Steps of the whole run.
        kept_step: The last step that a resumed run keeps, later rows being cut; None for a new run.

    Raises:
        ConfigError: A tracker is asked for and cannot be used.
        RunDirectoryError: A file cannot be written, or what the run kept cannot be read.
    """
    with (
        Watching(context, places, kept_step) as watching,
        # Closed first: its thread shows the last rows to the other.
        Recorder(config, places.metrics, places.tensorboard, places.root, max_steps, kept_step, phase) as recorder,
    ):
        yield _Loud(recorder, watching)
