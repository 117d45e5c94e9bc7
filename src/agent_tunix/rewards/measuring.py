"""Metrics of a mixture's scores in a step: `summarise` with the mixture's weights, gates, transforms and ranges."""

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from agent_tunix.rewards.kinds import declared_ranges, total_range
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Sample, Score
from agent_tunix.rewards.statistics import Metric, summarise
from agent_tunix.rewards.turns import EPISODE, Credit
from agent_tunix.visible_text import one_line

logger = logging.getLogger(__name__)

# Most different names of nested components and logged numbers in a run. A reward that invents names at every step would
# fill the memory. The service draws 1,000 metrics of a run, and half of these are left for all others.
MAX_LOGGED = 500


class RewardMetrics:
    """Metrics of the steps of one run, or of its replay.

    Args:
        num_generations: G, the completions of a group.
        scaling: `grpo.advantage_scaling`.
        detailed: `training.log_reward_stats`.
        credit: `grpo.credit` and its settings.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        num_generations: int,
        scaling: str = "group",
        histogram_bins: int = 10,
        detailed: bool = True,
        credit: Credit = EPISODE,
    ) -> None:
        self._mixture = mixture
        self._num_generations = num_generations
        self._scaling = scaling
        self._histogram_bins = histogram_bins
        self._detailed = detailed
        self._credit = credit
        self._gated = [component.name for component in mixture.components if component.requires]
        self._transformed = [component.name for component in mixture.components if component.transforms]
        # Computed once, because some ranges are read from docstrings.
        self._ranges = declared_ranges(mixture)
        self._logged: set[str] = set()
        self._has_warned = False

    def measure(
        self, step: int, samples: Sequence[Sample], scores: Sequence[Score], totals: np.ndarray, advantages: np.ndarray
    ) -> dict[str, Metric]:
        """Return the metrics of a step's completions and scores.

        Sequences and arrays have one entry per completion, group by group. `totals` is NaN for unscored completions.
        With credit by turn, `advantages` are [N, K] of the turns.
        """
        weights = self._mixture.weights(step)
        turns = None
        if self._credit.is_by_turn:
            turns = self._mixture.turn_rewards(samples, scores, self._num_generations, self._credit)
        metrics = summarise(
            scores,
            totals,
            advantages,
            num_generations=self._num_generations,
            weights=weights,
            gated=self._gated,
            transformed=self._transformed,
            samples=samples,
            scaling=self._scaling,
            ranges={**self._ranges, "total": total_range(self._mixture, self._ranges, weights)},
            histogram_bins=self._histogram_bins,
            detailed=self._detailed,
            turns=turns,
        )
        return metrics | self._limited(step, logged_metrics(scores))

    def _limited(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics whose names are among the first `MAX_LOGGED` of the run; warn once of others."""
        limited = {}
        for name, value in metrics.items():
            if len(self._logged) < MAX_LOGGED:
                self._logged.add(name)
            if name in self._logged:
                limited[name] = value
        if len(limited) < len(metrics) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "rewards may log at most %d different metrics in a run, but %d more are logged at step %d, such as %s; "
                "they and later ones are not recorded: log the same names at every step",
                MAX_LOGGED,
                len(metrics) - len(limited),
                step,
                next(name for name in metrics if name not in limited),
            )
        return limited


_LONGEST_NAME = 200


def logged_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """Return the means of nested components and logged numbers in the scores of a mixture.

    They are named `rewards/<component>/components/<name>` and `rewards/<component>/logged/<name>`. Each is the unscaled
    mean over the completions that have it.
    """
    values: dict[str, list[float]] = {}
    for score in scores:
        for component, part in score.parts.items():
            if part.components:  # most parts have none, and there are many parts
                _collect(values, f"rewards/{component}/components", part.components)
            if part.metrics:
                _collect(values, f"rewards/{component}/logged", part.metrics)
    return {name: math.fsum(numbers) / len(numbers) for name, numbers in values.items()}


def _collect(values: dict[str, list[float]], prefix: str, numbers: Mapping[str, float | None]) -> None:
    for name, number in numbers.items():
        if number is not None:
            values.setdefault(f"{prefix}/{one_line(name)[:_LONGEST_NAME]}", []).append(number)
