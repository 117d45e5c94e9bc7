"""TensorBoard as a tracker: events in a directory."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.samples import ShownSample, to_markdown
from agent_tunix.tracking.trackers.protocol import split


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

    id: str | None = None
    url: str | None = None

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
        numbers, histograms = split(metrics)
        for name, value in numbers.items():
            self._write(step, summary=self._summary.scalar(name, value))
        for name, histogram in histograms.items():
            self._write(step, summary=self._histogram(name, histogram))
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
