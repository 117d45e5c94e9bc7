"""The report that a run writes when it ends or stops early."""

import logging
from collections.abc import Callable
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.tracking.mlflow_tracker import attach_files
from agent_tunix.tracking.report import write_analysis, write_report
from agent_tunix.tracking.stored_run import StoredRun

_LOGGER = logging.getLogger("agent_tunix.run")


def report(config: Config, root: Path) -> dict[str, Path]:
    """Write the report and the reward analysis if configured, and attach them to MLflow.

    The keys are `tracking.report`, `training.save_reward_analysis` and `tracking.mlflow`. A report that cannot be
    written does not fail the run: the log says so, and gives the command that writes it later.

    `root`: Directory of the run. All other files of the run must be written and closed.

    Returns:
        Label → path of what was written.
    """
    written: dict[str, Path] = {}
    if config.tracking.report:
        plots = config.training.save_reward_analysis
        _attempt("report", lambda: write_report(StoredRun(root), root, plots=plots, config=config), written, root)
    if config.training.save_reward_analysis:
        _attempt("reward analysis", lambda: write_analysis(StoredRun(root), root), written, root)
    if config.tracking.mlflow:
        try:
            attach_files(config, root, [root / "config.yaml", *written.values()])
        except Exception as error:  # a tracker that fails does not fail the run
            _LOGGER.error("MLflow rejected the report (%s: %s); it is in %s", type(error).__name__, error, root)
    return written


def _attempt(label: str, write: Callable[[], Path], written: dict[str, Path], root: Path) -> None:
    try:
        written[label] = write()
    except Exception as error:  # the training is done and saved, so no error here may fail the run
        _LOGGER.error(
            "the %s was not written (%s: %s); its data is in the run's directory; try again with `agent-tunix report "
            "%s`",
            label,
            type(error).__name__,
            error,
            root,
        )
