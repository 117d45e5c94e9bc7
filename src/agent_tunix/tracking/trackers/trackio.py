"""Trackio as a tracker: a database on this machine, or a Space or server that its variables name."""

import secrets

from agent_tunix.tracking.trackers.protocol import TrackedRun
from agent_tunix.tracking.trackers.wandb import WandbTracker


class TrackioTracker(WandbTracker):
    """A tracker that writes to Trackio, which has the interface of Weights & Biases, and knows a run by its name."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        # A run in another directory of this name, or one that replaces it, is not to continue this one.
        self.id, self.url = run.id or f"{run.name}_{secrets.token_hex(3)}", None
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
