"""The one door through which a run's metrics go out."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_tunix.config.schema import Config
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after
from agent_tunix.tracking.progress import Progress
from agent_tunix.tracking.rollouts import RolloutWriter, StoredStep
from agent_tunix.tracking.rollouts.files import cut_after as cut_rollouts_after
from agent_tunix.tracking.samples import choose_samples
from agent_tunix.tracking.trackers import Tracker, open_trackers


class Recorder:
    """Sends each row to metrics.jsonl, to the trackers and to the terminal, and completions to `rollouts/`.

    Args:
        config: Which trackers, and how progress is shown.
        metrics: The metrics.jsonl.
        log_dir: Where TensorBoard events go.
        run_dir: The run's directory.
        num_steps: Steps of the whole run.
        kept_step: The last step that a resumed run keeps, later rows being cut; None for a new run, which keeps none.

    Raises:
        ConfigError: A tracker is asked for and cannot be used.
        RunDirectoryError: A file cannot be written.
    """

    def __init__(
        self, config: Config, metrics: Path, log_dir: Path, run_dir: Path, num_steps: int, kept_step: int | None
    ) -> None:
        self._config = config.tracking
        last_kept = -1 if kept_step is None else kept_step
        cut_after(metrics, last_kept)
        cut_rollouts_after(run_dir / "rollouts", last_kept)
        with contextlib.ExitStack() as stack:
            self._metrics = stack.enter_context(MetricsFile(metrics))
            self._progress = stack.enter_context(Progress(config.tracking.progress, num_steps, kept_step or 0))
            self._trackers = open_trackers(config, log_dir, run_dir, kept_step)
            for tracker in self._trackers:
                stack.push(functools.partial(_close, tracker))
            self._rollouts = stack.enter_context(RolloutWriter(run_dir / "rollouts", config.rollouts, config.seed))
            self._stack = stack.pop_all()

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """Send out the row of a step; it reaches metrics.jsonl before this returns."""
        self._metrics.write(step, row)
        for tracker in self._trackers:
            tracker.log(step, row)
        self._progress.update(step, row)

    def store(self, completions: StoredStep) -> dict[str, int]:
        """Keep the completions of a step, as `rollouts.share` says; they reach the disk by the next `flush`.

        Some are shown to the trackers, at the first step and where `tracking.sample_every_n_steps` has it due; the
        step's row is to be recorded afterwards.

        Returns:
            `rollouts/dropped`: completions that could not be written so far.
        """
        self._show(completions)
        self._rollouts.write(completions)
        return {"rollouts/dropped": self._rollouts.dropped}

    def flush(self) -> None:
        """Bring what is held back to the disk, so that a checkpoint is never ahead of trackers and rollouts."""
        self._rollouts.flush()
        for tracker in self._trackers:
            tracker.flush()

    def _show(self, completions: StoredStep) -> None:
        step, interval, num_samples = completions.step, self._config.sample_every_n_steps, self._config.num_samples
        if not self._trackers or not interval or not num_samples or (step > 1 and step % interval):
            return
        shown = choose_samples(completions.samples, completions.scores, completions.advantages, num_samples)
        for tracker in self._trackers:
            tracker.log_samples(step, shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _close(
    tracker: Tracker, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    tracker.close(failed=kind is not None)
