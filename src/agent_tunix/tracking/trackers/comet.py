"""Comet as a tracker. With COMET_START_ONLINE=0 it keeps the metrics in an archive for `comet upload`."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, split, to_table


class CometTracker:
    """A tracker that sends numbers, histograms and completions to Comet."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("COMET_ERROR_TRACKING_ENABLE", "0")  # reports of its own errors to Sentry
        import comet_ml

        # Comet would log output, code, arguments and the repository of this process, which are not the run's.
        names = ("log_code", "log_graph", "parse_args", "log_git_metadata", "log_git_patch", "auto_output_logging")
        switches: dict[str, Any] = dict.fromkeys(names, False)
        self._experiment = comet_ml.start(
            project_name=run.project,
            experiment_key=run.id,
            experiment_config=comet_ml.ExperimentConfig(
                name=run.name, offline_directory=str(run.directory / "comet"), display_summary_level=0, **switches
            ),
        )
        if not self._experiment.alive:  # it raises nothing
            raise ConnectionError("the experiment was not started")
        self._experiment.log_parameters(run.parameters)
        self.id: str | None = self._experiment.get_key()
        self.url: str | None = self._experiment.url

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers and histograms."""
        from comet_ml.data_structure import Histogram

        numbers, histograms = split(metrics)
        self._experiment.log_metrics(numbers, step=step)
        for name, histogram in histograms.items():
            edges, summary = histogram["edges"], Histogram()
            middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
            summary.add(values=middles, counts=histogram["counts"])
            self._experiment.log_histogram_3d(summary, name=name, step=step)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as a table, `samples_STEP.csv`."""
        columns, rows = to_table(step, samples)
        self._experiment.log_table(f"samples_{step}.csv", tabular_data=rows, headers=columns)

    def flush(self) -> None:
        """Do nothing: waiting for the service would slow the run."""

    def close(self, failed: bool = False) -> None:
        """Wait until everything is written or sent."""
        self._experiment.end()
