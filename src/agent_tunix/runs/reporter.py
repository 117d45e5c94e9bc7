"""Reporting of a run's rows, completions and findings, by the first of several processes alone."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from agent_tunix.config.schema import Config
from agent_tunix.grpo.step import StepResult
from agent_tunix.rewards import Fingerprint
from agent_tunix.rewards.turns import Credit
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.watching import Watching
from agent_tunix.startup.profiling import phase
from agent_tunix.tracking import Recorder
from agent_tunix.tracking.report import write_analysis, write_report
from agent_tunix.tracking.rollouts import ScoringSettings, StoredStep
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.tracking.trackers import attach_files, chosen_trackers
from agent_tunix.workbench.diagnosis import RunContext

Row = Mapping[str, Any]
NO_METRICS: Row = {}


class RunReporter(Protocol):
    """Receiver of the results of a run's steps."""

    def record(self, step: int, row: Row, result: StepResult | None = None, extra: Row = NO_METRICS) -> None:
        """Record the row of a step, which must not change afterwards, with extra metrics that no diagnosis sees."""

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        """Store the completions of a step, and return metrics to add to its row."""

    def barrier(self) -> Callable[[], None]:
        """Return a function that waits, in any thread, until everything reported so far is written."""

    def summary(self) -> dict[str, str]:
        """Return the row about findings for the table at the end of the run."""


class _LiveReporter:
    """Reporter to files, trackers, the terminal and the diagnosis."""

    def __init__(self, recorder: Recorder, watching: Watching) -> None:
        self._recorder, self._watching = recorder, watching

    def record(self, step: int, row: Row, result: StepResult | None = None, extra: Row = NO_METRICS) -> None:
        self._recorder.record(step, {**row, **extra}, also=lambda: self._watching.observe(step, row, result))

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        return self._recorder.store(make())

    def barrier(self) -> Callable[[], None]:
        # In the recorder's thread, which alone writes findings: nothing closes their file meanwhile.
        return self._recorder.barrier(self._watching.sync)

    def summary(self) -> dict[str, str]:
        return self._watching.summary()


class SilentReporter:
    """Reporter that discards everything, for processes other than the first."""

    def record(self, step: int, row: Row, result: StepResult | None = None, extra: Row = NO_METRICS) -> None:
        """Discard the row."""

    def store(self, make: Callable[[], StoredStep]) -> dict[str, int]:
        """Discard the completions, and return no metrics."""
        return {}

    def barrier(self) -> Callable[[], None]:
        """Return a function that returns at once."""
        return lambda: None

    def summary(self) -> dict[str, str]:
        """Return an empty row."""
        return {}


@contextlib.contextmanager
def open_reporter(
    config: Config, context: RunContext, places: RunPaths, max_steps: int, kept_step: int | None
) -> Iterator[RunReporter]:
    """Open the reporter of a run.

    Args:
        config: The run's.
        context: Facts about the run that its diagnosis needs.
        places: Paths of the run.
        max_steps: Number of steps of the run.
        kept_step: The last step that a resumed run keeps; later rows are removed. None for a new run.

    Raises:
        ConfigError: A configured tracker cannot be used.
        RunDirectoryError: A file cannot be written, or a stored file cannot be read.
    """
    with (
        Watching(context, places, kept_step) as watching,
        # Closes first, because its thread passes the last rows to `watching`.
        Recorder(config, places.metrics, places.tensorboard, places.root, max_steps, kept_step, phase) as recorder,
    ):
        yield _LiveReporter(recorder, watching)


_LOGGER = logging.getLogger("agent_tunix.run")


def report(config: Config, root: Path) -> dict[str, Path]:
    """Write the report and the reward analysis if configured, and attach them to MLflow.

    The keys are `tracking.report`, `training.save_reward_analysis`, `tracking.mlflow` and `tracking.trackers`. A
    report that cannot be written does not fail the run: the log gives the command that writes it later.

    Args:
        config: Configuration of the run.
        root: Directory of the run. All other files of the run must be written and closed.

    Returns:
        Label → path of each written file.
    """
    written: dict[str, Path] = {}
    if config.tracking.report:
        plots = config.training.save_reward_analysis
        _attempt("report", lambda: write_report(StoredRun(root), root, plots=plots, config=config), written, root)
    if config.training.save_reward_analysis:
        _attempt("reward analysis", lambda: write_analysis(StoredRun(root), root), written, root)
    if "mlflow" in chosen_trackers(config):
        try:
            attach_files(config.tracking.mlflow_uri, root, [root / "config.yaml", *written.values()])
        except Exception as error:  # a tracker that fails does not fail the run
            _LOGGER.error("MLflow rejected the report (%s: %s); it is in %s", type(error).__name__, error, root)
    return written


def _attempt(label: str, write: Callable[[], Path], written: dict[str, Path], root: Path) -> None:
    try:
        written[label] = write()
    except Exception as error:  # the training is done and saved, so no error here may fail the run
        _LOGGER.error(
            "the %s was not written (%s: %s); its data is in the run's directory; try again with `agent-tunix report "
            "%s`",
            label,
            type(error).__name__,
            error,
            root,
        )


def scoring_settings(config: Config, reward: Fingerprint) -> ScoringSettings:
    """Return the settings that determine the run's totals and advantages."""
    return ScoringSettings(
        num_generations=config.grpo.num_generations,
        advantage_scaling=config.grpo.advantage_scaling,
        on_failure=reward.on_failure,
        fingerprint=reward.short,
        credit=Credit.of(config.grpo),
    )


def to_stored(step: int, result: StepResult, settings: ScoringSettings) -> StoredStep:
    """Return the completions of a step in the form that is stored."""
    return StoredStep(
        step=step,
        samples=result.samples,
        scores=result.scores,
        advantages=result.advantages,
        logprobs=result.completions.logp_sums,
        settings=settings,
        groups_in_step=len(result.samples) // settings.num_generations,
        turn_advantages=result.turn_advantages,
    )
