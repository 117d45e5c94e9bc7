"""Trackio as a tracker: a database on this machine, or a Space or server that its variables name."""

from agent_tunix.tracking.trackers.protocol import TrackedRun
from agent_tunix.tracking.trackers.wandb import WandbTracker


class TrackioTracker(WandbTracker):
    """A tracker that writes to Trackio, which has the interface of Weights & Biases, and knows a run by its name."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self.id, self.url = run.id or run.name, None
        self._run = trackio.init(
            project=run.project,
            name=self.id,
            config=dict(run.config),
            resume="allow",
            private=True,  # a Space that it creates would be public, with the prompts and completions
            embed=False,
        )
        self._histogram, self._table = trackio.Histogram, trackio.Table

    def close(self, failed: bool = False) -> None:
        """Wait until everything is written or sent."""
        self._run.finish()
