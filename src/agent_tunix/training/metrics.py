"""One step, or one evaluation, as a row of `metrics.jsonl`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.rewards import Mixture, Sample, Score, summarise
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.kinds import declared_ranges, total_range
from agent_tunix.rewards.logged import logged_metrics
from agent_tunix.rewards.statistics import Metric
from agent_tunix.training.learner import StepResult


class StepMetrics:
    """Makes the row of each step.

    Args:
        mixture: The reward of the run.
        config: The run.
    """

    def __init__(self, mixture: Mixture, config: Config) -> None:
        self._mixture = mixture
        self._config = config
        # Read from docstrings among others, so only once.
        self._ranges = declared_ranges(mixture)

    def row(self, step: int, result: StepResult, learning_rate: float, step_seconds: float) -> dict[str, Any]:
        """What a step did, by the names that every tracker uses.

        Everything but `time/` and `throughput/` is a function of the configuration alone.

        Args:
            step: From 1.
            result: What the learner did.
            learning_rate: Of the step's last update.
            step_seconds: Wall time of the step.
        """
        completions = result.completions
        row: dict[str, Any] = self.of_rewards(step, result.samples, result.scores, result.totals, result.advantages)
        row |= {
            "completions/length_mean": float(completions.lengths.mean()),
            "completions/length_max": int(completions.lengths.max()),
            "completions/clipped_share": float((~completions.ended).mean()),
            "completions/distinct_share": len(set(completions.texts)) / len(completions.texts),
        }
        row |= {f"policy/{name}": value for name, value in result.policy.items()}
        row["policy/learning_rate"] = learning_rate
        row["policy/updates"] = result.updates_applied
        row |= {f"time/{name}_s": seconds for name, seconds in result.seconds.items()}
        row["time/step_s"] = step_seconds
        row["throughput/tokens_per_s"] = int(completions.lengths.sum()) / step_seconds
        row["throughput/samples_per_s"] = len(completions.texts) / step_seconds
        return row | judging_metrics(self._mixture)

    def of_rewards(
        self,
        step: int,
        samples: Sequence[Sample],
        scores: Sequence[Score],
        totals: np.ndarray,
        advantages: np.ndarray,
    ) -> dict[str, Metric]:
        """The part of the row that follows from completions and their scores, without a policy."""
        mixture, config = self._mixture, self._config
        weights = mixture.weights(step)
        metrics = summarise(
            scores,
            totals,
            advantages,
            num_generations=config.grpo.num_generations,
            weights=weights,
            gated=[component.name for component in mixture.components if component.requires],
            transformed=[component.name for component in mixture.components if component.transforms],
            samples=samples,
            scaling=config.grpo.advantage_scaling,
            ranges={**self._ranges, "total": total_range(mixture, self._ranges, weights)},
            histogram_bins=config.tracking.histogram_bins,
            detailed=config.training.log_reward_stats,
        )
        return metrics | logged_metrics(scores)


def judging_metrics(mixture: Mixture, prefix: str = "throughput") -> dict[str, float]:
    """What judges took in the step, and their cost so far; like timings, not a function of the configuration."""
    row: dict[str, float] = {}
    for component in mixture.components:
        reward, name = component.reward, f"{prefix}/{component.name}"
        if isinstance(reward, Mixture):
            row |= judging_metrics(reward, name)
        elif isinstance(reward, Judge):
            row |= {f"{name}/{leaf}": value for leaf, value in reward.step_metrics().items()}
            row[f"{name}/cost_total"] = reward.metrics()["cost"]
    return row
