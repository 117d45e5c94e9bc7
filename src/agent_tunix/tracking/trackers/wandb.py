"""Weights & Biases as a tracker. With WANDB_MODE=offline its client keeps the metrics for `wandb sync`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, split, to_table


class WandbTracker:
    """A tracker that sends numbers, histograms and completions to Weights & Biases."""

    id: str | None
    url: str | None
    _run: Any  # the client's run, and its classes
    _histogram: Any
    _table: Any

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=run.project,
            name=os.environ.get("WANDB_NAME") or run.name,
            dir=run.directory,
            config=dict(run.config),
            id=run.id,
            resume="allow",
            settings=wandb.Settings(console="off"),
        )
        self._histogram, self._table = wandb.Histogram, wandb.Table
        self.id, self.url = self._run.id, self._run.url

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
        """Do nothing: the client writes from its own process, which outlives this one."""

    def close(self, failed: bool = False) -> None:
        """Wait until everything is sent."""
        self._run.finish(exit_code=int(failed))
