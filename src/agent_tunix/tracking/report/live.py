"""Curves of a run in progress, bounded in length and updated with new rows."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.tracking.metrics_tail import MetricsTail
from agent_tunix.tracking.report.charts import curves_for, draw_curves
from agent_tunix.tracking.report.curves import Curves
from agent_tunix.tracking.report.pictures import Pictures
from agent_tunix.tracking.summary import components_of

_ROWS_AT_ONCE = 1000
_PAGES_A_LOOK = 2
# Rows kept until one has components: the number of components decides how many points a curve gets.
_MOST_EARLY = 100


@dataclass(frozen=True)
class Look:
    """State of a run's charts."""

    pictures: Pictures
    step: int | None  # the last step in them; None if there is none
    version: str  # changes when the run goes back to an earlier step
    is_whole: bool  # True if all rows so far are included; if not, another look shows more
    damaged: int  # number of lines of the metrics that are not rows and were left out


class LiveCurves:
    """Curves that follow a run's metrics; thread-safe."""

    def __init__(self, metrics: MetricsTail) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._version = ""
        self._pictures: Pictures | None = None  # shared by all viewers until there are new rows
        self._damaged = 0
        self._step: int | None = None
        self._curves: Curves | None = None
        self._early: list[Mapping[str, Any]] = []

    def look(self, seen: tuple[int | None, str] | None = None) -> Look | None:
        """Return the charts, including at most 2,000 new rows; None if `seen` is still the current step and version."""
        with self._lock:
            is_whole = self._catch_up()
            if is_whole and seen == (self._step, self._version):
                return None
            if self._pictures is None:
                self._pictures = draw_curves(self._curves or self._curves_of_early())
            return Look(self._pictures, self._step, self._version, is_whole, self._damaged)

    def _forget(self) -> None:
        self._pictures = self._step = self._curves = None
        self._early = []

    def _catch_up(self) -> bool:
        """Read new rows; return True if none are left."""
        for _ in range(_PAGES_A_LOOK):
            page = self._metrics.page(self._step, _ROWS_AT_ONCE)
            if page.version != self._version:
                self._version = page.version
                if self._step is not None:
                    page = self._metrics.page(None, _ROWS_AT_ONCE)
                self._forget()
            self._damaged = page.damaged
            for row in page.rows:
                self._add(row)
                self._step = max(self._step or 0, row["step"])
            if page.next is None:
                return True
        return False

    def _add(self, row: Mapping[str, Any]) -> None:
        self._pictures = None
        if self._curves is not None:
            self._curves.add(row)
            return
        self._early.append(row)
        if components_of(row) or len(self._early) >= _MOST_EARLY:
            self._curves = self._curves_of_early()
            self._early = []

    def _curves_of_early(self) -> Curves:
        curves = curves_for(self._early[-1] if self._early else {})
        for row in self._early:
            curves.add(row)
        return curves
