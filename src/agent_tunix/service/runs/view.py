"""View of one run, while it runs or later."""

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
    """View of a run; thread-safe."""

    def __init__(self, id: str, name: str, root: Path) -> None:
        self.id = id
        self.name = name
        self._root = root
        self._metrics = MetricsTail(root / "metrics.jsonl")
        self.curves = LiveCurves(self._metrics)
        self.rollouts = StoredRollouts(root / "rollouts")

    @property
    def config(self) -> dict[str, Any] | None:
        """Configuration of the run; None if it cannot be read."""
        return read_config(self._root)

    @property
    def reward_components(self) -> dict[str, dict[str, Any]] | None:
        """Components of the reward from the fingerprint; None if it cannot be read."""
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
        """Return rows of steps later than `after`, at most `limit`."""
        return self._metrics.page(after, limit)

    def components(self) -> list[str]:
        """Return the names of the reward's components, without the total, in the order of the last rows of metrics.

        Each has metrics `rewards/<component>/mean`, `/p10`, `/p50`, `/p90` and others.
        """
        found = (_COMPONENT.fullmatch(name) for row in self._metrics.last_rows(3) for name in row)
        return [name for name in dict.fromkeys(one[1] for one in found if one) if name != "total"]

    def evaluations(self) -> list[dict[str, Any]]:
        """Return step and metrics under `eval/` of rows with evaluations, in order; at most 5,000."""
        return self._metrics.evaluations()

    def findings(self) -> tuple[list[Finding], int]:
        """Return the findings, in order, and the number of lines that are not findings."""
        try:
            with open_plain(self._root / "findings.jsonl") as file:
                *lines, _ = file.read(_MAX_FINDINGS_BYTES).split(b"\n")  # the part after the last newline is incomplete
        except OSError:
            return [], 0
        found = []
        for line in lines:
            try:
                found.append(Finding.from_data(parse_object(line) or {}))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found, len(lines) - len(found)
