"""ClearML as a tracker. With CLEARML_OFFLINE_MODE=1 it keeps them for `Task.import_offline_session`."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.tracking.samples import ShownSample
from agent_tunix.tracking.trackers.protocol import TrackedRun, split, to_table


class ClearmlTracker:
    """A tracker that sends numbers, histograms and completions to ClearML.

    ClearML has two names for a curve: `rewards/total/mean` is the series `mean` of the plot `rewards/total`.
    """

    def __init__(self, run: TrackedRun) -> None:
        from clearml import Task

        self._task = Task.init(
            project_name=run.project,
            task_name=run.name,
            reuse_last_task_id=run.id or False,
            continue_last_task=0 if run.id else False,  # 0: our numbers of steps are right
            # The run logs its own configuration, and neither uncommitted code nor output.
            auto_connect_arg_parser=False,
            auto_connect_frameworks={"detect_repository": False},
            auto_connect_streams=False,
        )
        self._task.set_parameters({f"General/{name}": value for name, value in run.parameters.items()})
        self._logger = self._task.get_logger()
        self.id: str | None = self._task.id
        self.url: str | None = self._task.get_output_log_web_page()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers and histograms."""
        numbers, histograms = split(metrics)
        for name, value in numbers.items():
            self._logger.report_scalar(*_titles(name), value, step)
        for name, histogram in histograms.items():
            labels = [f"{edge:.4g}" for edge in histogram["edges"][:-1]]
            self._logger.report_histogram(*_titles(name), histogram["counts"], iteration=step, xlabels=labels)

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record completions as the table `samples`."""
        columns, rows = to_table(step, samples)
        self._logger.report_table("samples", "samples", iteration=step, table_plot=[columns, *rows])

    def flush(self) -> None:
        """Hand what was logged to ClearML's threads."""
        self._task.flush()

    def close(self, failed: bool = False) -> None:
        """Wait until everything is sent, and record how the run ended."""
        if failed:
            self._task.flush(wait_for_uploads=True)
            self._task.mark_failed(status_reason="the run failed", ignore_errors=True)
        self._task.close()


def _titles(name: str) -> tuple[str, str]:
    title, _, series = name.rpartition("/")
    return title or name, series
