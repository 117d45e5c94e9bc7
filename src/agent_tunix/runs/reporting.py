"""What a run writes about itself as it ends, however it ends."""

import logging
from collections.abc import Callable
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.tracking.mlflow_tracker import attach_files
from agent_tunix.tracking.report import write_analysis, write_report
from agent_tunix.tracking.stored_run import StoredRun

_LOGGER = logging.getLogger("agent_tunix.run")


def report(config: Config, root: Path) -> dict[str, Path]:
    """Write what `tracking.report` and `training.save_reward_analysis` ask for, and show it to MLflow where asked.

    No run dies of its pictures: what cannot be written is said, with the way to write it later.

    Args:
        config: The run's.
        root: Its directory; everything else that it writes is there and closed.

    Returns:
        What was written, by label.
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
        except Exception as error:  # As with any tracker, it is not the run's fault.
            _LOGGER.error("MLflow did not take the report (%s: %s); it is in %s", type(error).__name__, error, root)
    return written


def _attempt(label: str, write: Callable[[], Path], written: dict[str, Path], root: Path) -> None:
    try:
        written[label] = write()
    except Exception as error:  # Whatever it is, the training it tells of is done and saved.
        _LOGGER.error(
            "the %s was not written (%s: %s); what it is made of is in the run's directory, and `agent-tunix report %s`"
            " tries again",
            label,
            type(error).__name__,
            error,
            root,
        )
