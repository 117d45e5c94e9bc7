"""SwanLab as a tracker. With SWANLAB_MODE=offline it keeps the metrics for `swanlab sync`, with local for its board."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.tracking.samples import ShownSample, to_markdown
from agent_tunix.tracking.trackers.protocol import TrackedRun, split


class SwanlabTracker:
    """A tracker that sends numbers, and completions as text, to SwanLab, which has no histograms."""

    def __init__(self, run: TrackedRun) -> None:
        import swanlab

        settings = swanlab.Settings.model_validate(
            {"interactive": False, "terminal": {"proxy_type": "none"}, "probe": {"git": False}}
        )
        self._run = swanlab.init(
            project=run.project,
            name=run.name,
            config=dict(run.config),
            log_dir=str(run.directory / "swanlog"),
            id=run.id,
            resume="allow",
            settings=settings,
        )
        self._text = swanlab.Text
        self.id: str | None = self._run.id
        self.url: str | None = self._run.url if self._run.mode == "online" else None

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers."""
        self._run.log(split(metrics)[0], step=step)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as text, under `samples/best`, `samples/worst` and `samples/unscored`."""
        for rank in dict.fromkeys(sample.rank for sample in samples):
            text = to_markdown([sample for sample in samples if sample.rank == rank])
            self._run.log({f"samples/{rank}": self._text(text)}, step=step)

    def flush(self) -> None:
        """Do nothing: the library writes from its own thread."""

    def close(self, failed: bool = False) -> None:
        """Wait until everything is written or sent."""
        self._run.finish(state="crashed" if failed else "success", error="the run failed" if failed else None)
