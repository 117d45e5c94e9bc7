"""Trackers of metrics besides `metrics.jsonl`: TensorBoard, and if configured Weights & Biases and MLflow.

Only the latter two may use the network. A tracker that fails during the run is reported and switched off; the run
continues.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.tracking.metrics_file import is_histogram, is_number, to_plain
from agent_tunix.tracking.mlflow_tracker import MlflowTracker
from agent_tunix.tracking.samples import ShownSample, to_markdown

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """A receiver of the metrics of each step: numbers, histograms `{"counts", "edges"}`, and None if unknown."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of a step."""
        ...

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record some completions of a step; called before `log` with the same step."""
        ...

    def flush(self) -> None:
        """Make logged data durable; called before each checkpoint, because a resumed run logs only later steps."""
        ...

    def close(self, failed: bool = False) -> None:
        """Flush and release resources.

        Args:
            failed: True if the run ended with an error.
        """
        ...


class TensorBoardTracker:
    """A tracker that writes TensorBoard events.

    The calling thread writes the events: tensorboardX's own queue and thread would block the run forever once the disk
    is full.

    Args:
        log_dir: Directory of the events; created if it does not exist.
        flush_every_n_steps: Number of logged steps after which events are flushed.
        resume_step: Last step that a resumed run keeps; TensorBoard hides events after it.

    Raises:
        RunDirectoryError: The directory cannot be written.
    """

    def __init__(self, log_dir: Path, flush_every_n_steps: int, resume_step: int | None = None) -> None:
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        self._summary, self._event = summary, event_pb2.Event
        self._flush_every_n_steps = flush_every_n_steps
        self._steps_to_flush = 0
        try:
            log_dir.mkdir(parents=True, exist_ok=True)
            # The library's name counts whole seconds. A run resumed within the same second needs another, sorted later.
            self._writer = EventsWriter(str(log_dir / "events"), filename_suffix=f".{time.time_ns()}")
        except OSError as error:
            raise RunDirectoryError(
                f"TensorBoard events cannot be written to {log_dir}: {error.strerror}; "
                f"set training.log_dir elsewhere or tracking.tensorboard=false",
                code="unwritable_directory",
            ) from error
        if resume_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(resume_step + 1, session_log=start)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers as scalars, and histograms; other values are left out."""
        for name, value in to_plain(metrics).items():
            if is_number(value):
                self._write(step, summary=self._summary.scalar(name, value))
            elif is_histogram(value):
                self._write(step, summary=self._histogram(name, value))
        self._steps_to_flush += 1
        if self._steps_to_flush >= self._flush_every_n_steps:
            self.flush()

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as text, under `samples/best`, `samples/worst` and `samples/unscored`."""
        for rank in dict.fromkeys(sample.rank for sample in samples):
            text = to_markdown([sample for sample in samples if sample.rank == rank])
            self._write(step, summary=self._summary.text(f"samples/{rank}", text))

    def flush(self) -> None:
        """Hand the events to the operating system."""
        self._writer.flush()
        self._steps_to_flush = 0

    def close(self, failed: bool = False) -> None:
        """Flush and close the file."""
        self._writer.close()

    def _write(self, step: int, **content: Any) -> None:
        self._writer.write_event(self._event(wall_time=time.time(), step=step, **content))

    def _histogram(self, name: str, value: Mapping[str, Any]) -> Any:
        """Return a TensorBoard histogram; its sums are estimated from the middles of the bins."""
        counts, edges = np.asarray(value["counts"], float), np.asarray(value["edges"], float)
        middles = (edges[:-1] + edges[1:]) / 2
        return self._summary.histogram_raw(
            name,
            min=edges[0],
            max=edges[-1],
            num=counts.sum(),
            sum=counts @ middles,
            sum_squares=counts @ middles**2,
            bucket_limits=edges[1:].tolist(),
            bucket_counts=counts.tolist(),
        )


class WandbTracker:
    """A tracker that sends metrics to Weights & Biases, or keeps them for `wandb sync` if WANDB_MODE=offline.

    A resumed run continues the same W&B run, whose id is in `wandb_run_id` of the run's directory.

    Args:
        config: The run's configuration, shown beside the metrics.
        run_dir: Directory of the run.

    Raises:
        ConfigError: The package is missing, or no run can be opened (no key, no network).
    """

    def __init__(self, config: Config, run_dir: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                "wandb_disabled=false requires the package wandb, which is not installed;"
                ' pip install "agent_tunix[wandb]"',
                code="missing_package",
            ) from error
        id_file = run_dir / "wandb_run_id"
        try:
            self._run = wandb.init(
                project=config.training.wandb_project or config.project_name,
                dir=run_dir,
                config=dataclasses.asdict(config),
                id=id_file.read_text().strip() if id_file.exists() else None,
                resume="allow",
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"Weights & Biases cannot open a run: {error}; run `wandb login`, set WANDB_MODE=offline to send the "
                f"metrics later, or set wandb_disabled=true",
                code="tracker_failed",
            ) from error
        id_file.write_text(self._run.id)
        self._histogram, self._table = wandb.Histogram, wandb.Table

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers and histograms; other values are left out."""
        values = {}
        for name, value in to_plain(metrics).items():
            if is_number(value):
                values[name] = value
            elif is_histogram(value):
                values[name] = self._histogram(np_histogram=(value["counts"], value["edges"]))
        self._run.log(values, step=step)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as the table `samples`, one row each, with a column for every component."""
        components = list(dict.fromkeys(name for sample in samples for name in sample.components))
        fields = [field.name for field in dataclasses.fields(ShownSample) if field.name != "components"]
        table = self._table(columns=["step", *fields, *(f"rewards/{name}" for name in components)])
        for sample in samples:
            values = [sample.components.get(name) for name in components]
            table.add_data(step, *(getattr(sample, name) for name in fields), *values)
        self._run.log({"samples": table}, step=step)

    def flush(self) -> None:
        """Do nothing: the client writes from its own process, which outlives this one."""

    def close(self, failed: bool = False) -> None:
        """Wait until everything is sent."""
        self._run.finish(exit_code=int(failed))


class _Guarded:
    """A wrapper that logs the first failure of its tracker as an error, then switches the tracker off."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker: Tracker | None = tracker
        self._name = name

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._attempt(lambda tracker: tracker.log(step, metrics))

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        self._attempt(lambda tracker: tracker.log_samples(step, samples))

    def flush(self) -> None:
        self._attempt(lambda tracker: tracker.flush())

    def close(self, failed: bool = False) -> None:
        self._attempt(lambda tracker: tracker.close(failed))
        self._tracker = None

    def _attempt(self, action: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            action(self._tracker)
        except Exception as error:  # a tracker's client may raise anything, and must not stop the run
            self._tracker = None
            logger.error(
                "%s failed and is disabled; the run continues, and metrics.jsonl has every row (%s: %s)",
                self._name,
                type(error).__name__,
                error,
            )


def open_trackers(config: Config, log_dir: Path, run_dir: Path, resume_step: int | None = None) -> list[Tracker]:
    """Open the trackers that the configuration asks for.

    Args:
        config: Configuration with `tracking.tensorboard`, `tracking.mlflow` and `wandb_disabled`.
        log_dir: Directory for TensorBoard events.
        run_dir: Directory of the run.
        resume_step: Last step that a resumed run keeps; None for a new run.

    Raises:
        ConfigError: Weights & Biases or MLflow is configured and cannot be used.
        RunDirectoryError: The directory of the events cannot be written.
    """
    trackers: list[Tracker] = []
    if config.tracking.tensorboard:
        tensorboard = TensorBoardTracker(log_dir, config.training.flush_every_n_steps, resume_step)
        trackers.append(_Guarded(tensorboard, "TensorBoard"))
    if not config.wandb_disabled:
        trackers.append(_Guarded(WandbTracker(config, run_dir), "Weights & Biases"))
    if config.tracking.mlflow:
        trackers.append(_Guarded(MlflowTracker(config, run_dir), "MLflow"))
    return trackers
