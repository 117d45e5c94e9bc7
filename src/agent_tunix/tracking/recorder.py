"""The single exit through which a run records its metrics.

A background thread writes rows and samples in the order of the steps while the run continues; rollouts have a thread
of their own. Queues are bounded, and the next call raises an error of the thread. A checkpoint waits for `barrier`, so
that it comes after everything recorded before it.
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

# Rows and samples that may wait for a slow disk or tracker before the run itself waits.
_ROWS_WAITING = 4


class Recorder:
    """The recorder of a run: rows go to metrics.jsonl, trackers and the terminal, completions to `rollouts/`.

    Args:
        config: Configures trackers and the progress display.
        metrics: Path of metrics.jsonl.
        log_dir: Directory for TensorBoard events.
        run_dir: Directory of the run.
        num_steps: Steps of the whole run.
        kept_step: Last step that a resumed run keeps; later rows are removed. None for a new run, which keeps none.
        annotate: Names the thread's tasks in a trace.

    Raises:
        ConfigError: A configured tracker cannot be used.
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
            # Closed first, while the files and trackers it writes to are open.
            self._background = stack.enter_context(Background("records", _ROWS_WAITING, annotate))
            self._stack = stack.pop_all()

    def record(self, step: int, row: Mapping[str, Any], also: Callable[[], None] | None = None) -> None:
        """Record the row of a step, which must not be changed afterwards; the next barrier guarantees it is on disk.

        Args:
            step: Number of the step, from 0.
            row: Metrics of the step.
            also: Called after the row is written, in the same thread.

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
        """Store the completions of a step, according to `rollouts.share`; they reach the disk by the next `flush`.

        Trackers show some of them at the first step and every `tracking.sample_every_n_steps`. Record the step's row
        afterwards.

        Returns:
            `rollouts/dropped`: number of completions that could not be written so far.
        """
        self._show(completions)
        self._rollouts.write(completions)
        return {"rollouts/dropped": self._rollouts.dropped}

    def barrier(self, also: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """Return a function that waits, in any thread, until everything recorded so far is written.

        Metrics and rollouts are on the device then, so that a checkpoint is never ahead of them, even after a power
        cut. Trackers have handed theirs to the operating system.

        Args:
            also: Called after that, in the thread that calls the `also` of `record`.
        """
        rollouts = self._rollouts.barrier()
        self._background.submit("flush", functools.partial(self._flush, also))
        records = self._background.barrier()

        def wait() -> None:
            rollouts()
            records()

        return wait

    def flush(self) -> None:
        """Wait until everything recorded so far is written; see `barrier`."""
        self.barrier()()

    def _flush(self, also: Callable[[], None]) -> None:
        self._metrics.sync()
        for tracker in self._trackers:
            tracker.flush()
        also()

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
