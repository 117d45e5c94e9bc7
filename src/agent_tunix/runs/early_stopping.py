"""Early stopping: the best step so far by a metric, and the reason to stop.

The metric is judged after each evaluation and after the last step. A metric that every step logs counts by its mean
over the steps since the last judgement, so that one lucky batch is not the best. A metric that only evaluations log
counts by the evaluation. The judgements depend only on the rows of metrics.jsonl, so a resumed run makes the same
ones as an uninterrupted run.
"""

import copy
import math
import statistics
from collections.abc import Mapping
from typing import Any

from agent_tunix.config.limits import suggest
from agent_tunix.config.schema import StoppingConfig
from agent_tunix.errors import ConfigError


class BestSoFar:
    """The best judgement of a run's rows.

    Attributes:
        step: Step of the best judgement; None before the first.
    """

    def __init__(self, settings: StoppingConfig) -> None:
        self._settings = settings
        self._since: list[float] = []
        self.step: int | None = None
        self.value = math.nan
        self.last_step = 0
        self.waited = 0

    def observe(self, step: int, row: Mapping[str, Any], judged: bool) -> bool:
        """Add the row of a step.

        Args:
            step: Number of the step, from 1; 0 for the evaluation before training, the baseline of later ones.
            row: Metrics of the step.
            judged: True to judge the metric at this step.

        Returns:
            True if this step is now the best.

        Raises:
            ConfigError: No row of the run has the metric.
        """
        metric = self._settings.metric
        if metric is None:
            return False
        if metric not in row and step == (0 if metric.startswith("eval/") else 1):
            raise ConfigError(
                f"stopping.metric={metric} must be a metric of this run{suggest(metric, sorted(row))}; its metrics "
                "are "
                f"{', '.join(sorted(name for name in row if name.partition('/')[0] == metric.partition('/')[0]))}",
                code="unknown_metric",
            )
        value = row.get(metric)
        if isinstance(value, int | float) and math.isfinite(value):
            self._since.append(float(value))
        if not judged or not self._since:
            return False
        current, self._since = statistics.fmean(self._since), []
        self.last_step = step
        if self.step is not None and not self._is_better(current):
            self.waited += 1
            return False
        self.step, self.value, self.waited = step, current, 0
        return True

    def would_be(self, step: int, row: Mapping[str, Any]) -> bool:
        """Return True if a step would be the best if it were judged, without judging it."""
        return copy.deepcopy(self).observe(step, row, judged=True)

    def _is_better(self, value: float) -> bool:
        gain = value - self.value if self._settings.mode == "max" else self.value - value
        return gain > self._settings.min_delta

    @property
    def reason_to_stop(self) -> str | None:
        """The reason to stop the run; None if it should go on."""
        patience = self._settings.patience
        if patience is None or self.waited < patience:
            return None
        return (
            f"{self._settings.metric} has not improved on {self.value:.4g}, the value of step {self.step}, for "
            f"{self.waited} evaluations (stopping.patience={patience})"
        )
