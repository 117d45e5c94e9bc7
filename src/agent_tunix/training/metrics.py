"""One step, or one evaluation, as a row of `metrics.jsonl`."""

from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.rewards import Mixture, summarise
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.logged import logged_metrics
from agent_tunix.training.learner import StepResult


def make_row(
    step: int, result: StepResult, mixture: Mixture, config: Config, learning_rate: float, step_seconds: float
) -> dict[str, Any]:
    """What a step did, by the names that every tracker uses.

    Everything but `time/` and `throughput/` is a function of the configuration alone.
    """
    completions = result.completions
    num_tokens = int(completions.lengths.sum())
    row: dict[str, Any] = summarise(
        result.scores,
        result.totals,
        result.advantages,
        num_generations=config.grpo.num_generations,
        weights=mixture.weights(step),
        gated=[component.name for component in mixture.components if component.requires],
        transformed=[component.name for component in mixture.components if component.transforms],
        histogram_bins=config.tracking.histogram_bins,
        detailed=config.training.log_reward_stats,
    )
    row |= logged_metrics(result.scores)
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
    row["throughput/tokens_per_s"] = num_tokens / step_seconds
    row["throughput/samples_per_s"] = len(completions.texts) / step_seconds
    return row | judging_metrics(mixture)


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
