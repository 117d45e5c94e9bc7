"""Which step was the best so far by a metric, and whether the run may end.

The metric is judged where the run evaluates and after the last step: of a metric that every step logs, by its mean over
the steps since it was judged last, so that one lucky batch is no best; of one that only evaluations log, by the
evaluation. All follows from the rows of metrics.jsonl, so a resumed run judges as an unbroken one.
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from agent_tunix.config.checks import suggest
from agent_tunix.config.schema import StoppingConfig
from agent_tunix.errors import ConfigError


class BestSoFar:
    """The best judgement of a run's rows.

    Args:
        settings: Which metric, what is better, and when to give up.

    Attributes:
        step: Of the best judgement; None before the first.
        value: What the metric was there.
        last_step: Of the last judgement.
        waited: Judgements since the best.
    """

    def __init__(self, settings: StoppingConfig) -> None:
        self._settings = settings
        self._since: list[float] = []
        self.step: int | None = None
        self.value = math.nan
        self.last_step = 0
        self.waited = 0

    def observe(self, step: int, row: Mapping[str, Any], judged: bool) -> bool:
        """Take in the row of a step.

        Args:
            step: From 1; 0 for the evaluation before training, with which later ones are compared.
            row: The step's metrics.
            judged: Whether the metric is judged here.

        Returns:
            Whether this step is now the best.

        Raises:
            ConfigError: No row will ever have the metric.
        """
        metric = self._settings.metric
        if metric is None:
            return False
        if metric not in row and step == (0 if metric.startswith("eval/") else 1):
            raise ConfigError(
                f"stopping.metric={metric} is no metric of this run{suggest(metric, sorted(row))}; its rows have"
                f" {', '.join(sorted(name for name in row if name.partition('/')[0] == metric.partition('/')[0]))}",
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

    def _is_better(self, value: float) -> bool:
        gain = value - self.value if self._settings.mode == "max" else self.value - value
        return gain > self._settings.min_delta

    @property
    def reason_to_stop(self) -> str | None:
        """Why the run may end; None while it may not."""
        patience = self._settings.patience
        if patience is None or self.waited < patience:
            return None
        return (
            f"{self._settings.metric} has been no better than {self.value:.4g}, that of step {self.step}, for"
            f" {self.waited} judgements (stopping.patience={patience})"
        )
