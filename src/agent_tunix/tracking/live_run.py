"""A run as the service shows it, while it is in progress or later: damaged files leave gaps, but raise no errors."""

import json
import re
from pathlib import Path
from typing import Any

from agent_tunix.errors import ConfigError
from agent_tunix.tracking.findings_file import read_intact_findings
from agent_tunix.tracking.metrics_file import to_plain
from agent_tunix.tracking.metrics_tail import MetricsTail, read_last_rows
from agent_tunix.tracking.report.live import LiveCurves
from agent_tunix.tracking.rollouts.pages import RolloutPages
from agent_tunix.workbench.diagnosis import Finding

_COMPONENT = re.compile(r"rewards/([^/]+)/mean")
_NUM_LAST_ROWS = 3


class LiveRun:
    """A run whose files are read again as they grow; thread-safe.

    Args:
        root: The directory.

    Attributes:
        metrics: Rows of its metrics.
        curves: Charts of its metrics.
        rollouts: Pages of its completions.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.metrics = MetricsTail(root / "metrics.jsonl")
        self.curves = LiveCurves(self.metrics)
        self.rollouts = RolloutPages(root / "rollouts")

    @property
    def config(self) -> dict[str, Any] | None:
        """Configuration of the run as plain values; None if it cannot be read."""
        return read_plain_config(self.root)

    def components(self) -> list[str]:
        """Return the names of the reward's components, without the total, in the order of the last rows of metrics.

        Each has metrics `rewards/<component>/mean`, `/p10`, `/p50`, `/p90` and others.
        """
        rows = read_last_rows(self.root / "metrics.jsonl")[-_NUM_LAST_ROWS:]
        matches = (_COMPONENT.fullmatch(name) for row in rows for name in row)
        return [name for name in dict.fromkeys(match[1] for match in matches if match) if name != "total"]

    def findings(self) -> tuple[list[Finding], int]:
        """Return the findings, in order, and the number of damaged lines."""
        return read_intact_findings(self.root / "findings.jsonl")


def read_plain_config(root: Path) -> dict[str, Any] | None:
    """Return a run's configuration as values of JSON; None if it is unreadable or invalid."""
    from agent_tunix.config.compose import check_yaml  # loads Hydra

    try:
        config: dict[str, Any] = to_plain(json.loads(json.dumps(check_yaml(root / "config.yaml"), default=str)))
    except (ConfigError, ValueError, TypeError):
        return None
    return config
