"""The one door through which a run's metrics go out."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.rewards import Sample, Score
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after
from agent_tunix.tracking.progress import Progress
from agent_tunix.tracking.samples import choose_samples
from agent_tunix.tracking.trackers import open_trackers


class Recorder:
    """Sends each row to metrics.jsonl, to the trackers and to the terminal.

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
        cut_after(metrics, -1 if kept_step is None else kept_step)
        with contextlib.ExitStack() as stack:
            self._metrics = stack.enter_context(MetricsFile(metrics))
            self._progress = stack.enter_context(Progress(config.tracking.progress, num_steps, kept_step or 0))
            self._trackers = open_trackers(config, log_dir, run_dir, kept_step)
            for tracker in self._trackers:
                stack.callback(tracker.close)
            self._stack = stack.pop_all()

    def record(self, step: int, row: Mapping[str, Any]) -> None:
        """Send out the row of a step; it reaches metrics.jsonl before this returns."""
        self._metrics.write(step, row)
        for tracker in self._trackers:
            tracker.log(step, row)
        self._progress.update(step, row)

    def record_samples(
        self, step: int, samples: Sequence[Sample], scores: Sequence[Score], advantages: np.ndarray
    ) -> None:
        """Show the trackers some completions, at the first step and where `tracking.sample_every_n_steps` has it due.

        Args:
            step: From 1; its row is to be recorded afterwards.
            samples: The step's completions.
            scores: What the reward said of each.
            advantages: The advantage of each.
        """
        interval, num_samples = self._config.sample_every_n_steps, self._config.num_samples
        if not self._trackers or not interval or not num_samples or (step > 1 and step % interval):
            return
        shown = choose_samples(samples, scores, advantages, num_samples)
        for tracker in self._trackers:
            tracker.log_samples(step, shown)

    def flush(self) -> None:
        """Bring what trackers hold back to the disk, so that a checkpoint is never ahead of them."""
        for tracker in self._trackers:
            tracker.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
