"""Trackio as a tracker: a database on this machine, or a Space or server that its variables name."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, split, to_table


class TrackioTracker:
    """A tracker that writes numbers, histograms and completions to Trackio, which knows a run by its name."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self.id: str | None = run.id or run.name
        self._run = trackio.init(
            project=run.project,
            name=self.id,
            config=dict(run.config),
            resume="allow",
            private=True,  # a Space that it creates would be public, with the prompts and completions
            embed=False,
        )
        self._histogram, self._table = trackio.Histogram, trackio.Table
        self.url: str | None = None

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers and histograms."""
        numbers, histograms = split(metrics)
        bins = {name: self._histogram(np_histogram=(h["counts"], h["edges"])) for name, h in histograms.items()}
        self._run.log(numbers | bins, step=step)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as the table `samples`."""
        columns, rows = to_table(step, samples)
        self._run.log({"samples": self._table(columns=columns, data=rows)}, step=step)

    def flush(self) -> None:
        """Do nothing: the library writes from a thread, twice a second."""

    def close(self, failed: bool = False) -> None:
        """Wait until everything is written or sent."""
        self._run.finish()
