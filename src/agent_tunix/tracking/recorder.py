"""The one door through which a run's metrics go out.

Rows and samples are handed to a thread that writes them while the run goes on, in the order of the steps; rollouts have
a thread of their own. What waits is bounded, errors are raised by the next call, and `barrier` is how a checkpoint
comes after all that went out before it.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent_tunix.config.schema import Config
from agent_tunix.tracking.background import Annotate, Background
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after
from agent_tunix.tracking.progress import Progress
from agent_tunix.tracking.rollouts import RolloutWriter, StoredStep
from agent_tunix.tracking.rollouts.files import cut_after as cut_rollouts_after
from agent_tunix.tracking.samples import choose_samples
from agent_tunix.tracking.trackers import Tracker, open_trackers

# Rows and samples that wait for a slow disk or tracker before the run waits with them.
_ROWS_WAITING = 4


class Recorder:
    """Sends each row to metrics.jsonl, to the trackers and to the terminal, and completions to `rollouts/`.

    Args:
        config: Which trackers, and how progress is shown.
        metrics: The metrics.jsonl.
        log_dir: Where TensorBoard events go.
        run_dir: The run's directory.
        num_steps: Steps of the whole run.
        kept_step: The last step that a resumed run keeps, later rows being cut; None for a new run, which keeps none.
        annotate: Names what its thread does, for a trace.

    Raises:
        ConfigError: A tracker is asked for and cannot be used.
        RunDirectoryError: A file cannot be written.
    """

    def __init__(
        self,
        config: Config,
        metrics: Path,
        log_dir: Path,
        run_dir: Path,
        num_steps: int,
        kept_step: int | None,
        annotate: Annotate = contextlib.nullcontext,
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
            # Closed first, while what it writes to is open.
            self._background = stack.enter_context(Background("records", _ROWS_WAITING, annotate))
            self._stack = stack.pop_all()

    def record(self, step: int, row: Mapping[str, Any], also: Callable[[], None] | None = None) -> None:
        """Send out the row of a step, which must not be changed afterwards; it is in metrics.jsonl by the next barrier.

        Args:
            step: From 0.
            row: The metrics.
            also: Done after it, in the same thread.

        Raises:
            RunDirectoryError: An earlier row could not be written.
        """

        def write() -> None:
            self._metrics.write(step, row)
            for tracker in self._trackers:
                tracker.log(step, row)
            self._progress.update(step, row)
            if also is not None:
                also()

        self._background.submit("metrics", write)

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

    def barrier(self) -> Callable[[], None]:
        """A function that returns, in any thread, when all that went out before is on its way to the disk.

        So that a checkpoint is never ahead of metrics, trackers and rollouts.
        """
        rollouts = self._rollouts.barrier()
        self._background.submit("flush", self._flush_trackers)
        records = self._background.barrier()

        def wait() -> None:
            rollouts()
            records()

        return wait

    def flush(self) -> None:
        """Wait until all that went out is on its way to the disk."""
        self.barrier()()

    def _flush_trackers(self) -> None:
        for tracker in self._trackers:
            tracker.flush()

    def _show(self, completions: StoredStep) -> None:
        step, interval, num_samples = completions.step, self._config.sample_every_n_steps, self._config.num_samples
        if not self._trackers or not interval or not num_samples or (step > 1 and step % interval):
            return
        shown = choose_samples(completions.samples, completions.scores, completions.advantages, num_samples)

        def log() -> None:
            for tracker in self._trackers:
                tracker.log_samples(step, shown)

        self._background.submit("samples", log)

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
