"""One run, to look into while it goes on or later."""

import re
from pathlib import Path
from typing import Any

from agent_tunix.service.runs.curves import LiveCurves
from agent_tunix.service.runs.files import open_plain, parse_object
from agent_tunix.service.runs.metrics import MetricsPage, MetricsTail
from agent_tunix.service.runs.rollouts import StoredRollouts
from agent_tunix.service.runs.summary import read_config
from agent_tunix.workbench.diagnosis import Finding

_COMPONENT = re.compile(r"rewards/([^/]+)/mean")
_MAX_FINDINGS_BYTES = 4 * 2**20
_MAX_ENVIRONMENT_BYTES = 4 * 2**20


class RunView:
    """A run; may be used by several threads.

    Args:
        id: Its id.
        name: Its name.
        root: Its directory.
    """

    def __init__(self, id: str, name: str, root: Path) -> None:
        self.id = id
        self.name = name
        self._root = root
        self._metrics = MetricsTail(root / "metrics.jsonl")
        self.curves = LiveCurves(self._metrics)
        self.rollouts = StoredRollouts(root / "rollouts")

    @property
    def config(self) -> dict[str, Any] | None:
        """Its configuration; None where that cannot be read."""
        return read_config(self._root)

    @property
    def reward_components(self) -> dict[str, dict[str, Any]] | None:
        """What each component of its reward is made of, as the fingerprint tells; None where that cannot be read."""
        try:
            with open_plain(self._root / "environment.json") as file:
                environment = parse_object(file.read(_MAX_ENVIRONMENT_BYTES)) or {}
        except OSError:
            return None
        stored = environment.get("reward_fingerprint")
        components = stored.get("components") if isinstance(stored, dict) else None
        if not isinstance(components, dict) or not all(isinstance(one, dict) for one in components.values()):
            return None
        return components

    def metrics(self, after: int | None = None, limit: int = 1000) -> MetricsPage:
        """The rows of later steps than `after`, at most `limit`."""
        return self._metrics.page(after, limit)

    def components(self) -> list[str]:
        """The reward's components, in the order of the last rows' metrics, of each of which there are

        `rewards/<component>/mean`, `/p10`, `/p50`, `/p90` and the like; the total is not among them.
        """
        found = (_COMPONENT.fullmatch(name) for row in self._metrics.last_rows(3) for name in row)
        return [name for name in dict.fromkeys(one[1] for one in found if one) if name != "total"]

    def evaluations(self) -> list[dict[str, Any]]:
        """Of the rows that have evaluations, the step and the metrics under `eval/`, in order; at most 5,000."""
        return self._metrics.evaluations()

    def findings(self) -> tuple[list[Finding], int]:
        """What was diagnosed, in order, and how many lines are no finding."""
        try:
            with open_plain(self._root / "findings.jsonl") as file:
                *lines, _ = file.read(_MAX_FINDINGS_BYTES).split(b"\n")  # what follows the last end is half a line
        except OSError:
            return [], 0
        found = []
        for line in lines:
            try:
                found.append(Finding.from_data(parse_object(line) or {}))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found, len(lines) - len(found)
