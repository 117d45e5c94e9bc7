"""Metrics of a step: its row of `metrics.jsonl`."""

from collections import Counter
from typing import Any

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.data import SET_COLUMN
from agent_tunix.grpo.dynamic_sampling import SamplingTally
from agent_tunix.grpo.step import StepResult
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.measuring import RewardMetrics
from agent_tunix.rewards.statistics.episodes import episode_metrics
from agent_tunix.rewards.turns import Credit
from agent_tunix.visible_text import align, one_line

_LONGEST_RESPONSE = 60


class StepMetrics:
    """Metrics of each step of a run.

    Args:
        mixture: The reward of the run.

    Attributes:
        of_rewards: Metrics that follow from completions and their scores alone.
    """

    def __init__(self, mixture: Mixture, config: Config) -> None:
        self._mixture = mixture
        self._num_generations = config.grpo.num_generations
        self._sets = list(config.data.mixture)
        self.of_rewards = RewardMetrics(
            mixture,
            num_generations=config.grpo.num_generations,
            scaling=config.grpo.advantage_scaling,
            histogram_bins=config.tracking.histogram_bins,
            detailed=config.training.log_reward_stats,
            credit=Credit.of(config.grpo),
        )

    def row(self, step: int, result: StepResult, learning_rate: float, step_seconds: float) -> dict[str, Any]:
        """Return the metrics of a step, by the names that every tracker uses.

        All metrics except `time/`, `throughput/` and `engine/` depend on the configuration alone.

        Args:
            step: Number of the step, from 1.
            result: Result of the step.
            learning_rate: Learning rate of the step's last update.
            step_seconds: Wall time of the step.
        """
        completions, num_sampled = result.completions, result.completions.num_sampled
        row: dict[str, Any] = self.of_rewards.measure(
            step,
            result.samples,
            result.scores,
            result.totals,
            result.advantages if result.turn_advantages is None else result.turn_advantages,
        )
        row |= {
            "completions/length_mean": float(num_sampled.mean()),
            "completions/length_min": int(num_sampled.min()),
            "completions/length_max": int(num_sampled.max()),
            "completions/tokens": int(completions.prompt_lengths.sum() + num_sampled.sum()),
            "completions/clipped_share": float((~completions.ended).mean()),
            "completions/distinct_share": len(set(completions.texts)) / len(completions.texts),
            "completions/distinct_prompts": len({sample.prompt for sample in result.samples}),
        }
        ended = num_sampled[completions.ended]
        row |= {
            f"completions/ended_length_{name}": float(value(ended)) if ended.size else None
            for name, value in (("mean", np.mean), ("min", np.min), ("max", np.max))
        }
        row |= episode_metrics(result.samples, result.totals)
        if self._sets:
            counts = Counter(sample.columns[SET_COLUMN] for sample in result.samples)
            row |= {f"data/{name}/share": counts[name] / len(result.samples) for name in self._sets}
        row |= {f"policy/{name}": value for name, value in result.policy.items()}
        if completions.versions is not None:
            ages = step - 1 - completions.versions
            row |= {"engine/staleness/mean": float(ages.mean()), "engine/staleness/max": int(ages.max())}
        if result.num_waiting is not None:
            row["engine/queue"] = result.num_waiting
        if result.num_kept is not None:
            steps = [sample.step for sample in result.samples[:: self._num_generations] if sample.step < step]
            age = float(np.mean([step - earlier for earlier in steps])) if steps else None
            row |= {"replay/groups": len(steps), "replay/age_mean": age, "replay/kept": result.num_kept}
        row["policy/learning_rate"] = learning_rate
        row["policy/updates"] = result.updates_applied
        row["policy/updates_skipped"] = result.updates_skipped
        row |= {f"time/{name}_s": seconds for name, seconds in result.seconds.items()}
        row["time/step_s"] = step_seconds
        tokens, samples = int(num_sampled.sum()), len(completions.texts)
        if result.sampled is not None:
            row |= _sampling_metrics(result.sampled)
            tokens, samples = result.sampled.num_tokens, result.sampled.num_completions
        row["throughput/tokens_per_s"] = tokens / step_seconds
        row["throughput/samples_per_s"] = samples / step_seconds
        return row | judging_metrics(self._mixture)


def _sampling_metrics(sampled: SamplingTally) -> dict[str, Any]:
    """Return metrics of all completions that were sampled. Other metrics describe only those that trained."""
    row: dict[str, Any] = {
        "sampling/rounds": sampled.rounds,
        "sampling/groups": sampled.groups,
        "sampling/dead_groups": sampled.dead_groups,
        "sampling/surplus_groups": sampled.surplus_groups,
        "sampling/reward_mean": sampled.reward_mean,
    }
    return row | {f"sampling/outcomes/{outcome}": count for outcome, count in sampled.outcomes.items()}


def judging_metrics(mixture: Mixture, prefix: str = "throughput") -> dict[str, float]:
    """Return the judges' metrics of the step and their cost so far.

    Like timings, these can differ between runs of the same configuration.
    """
    row: dict[str, float] = {}
    for component in mixture.components:
        reward, name = component.reward, f"{prefix}/{component.name}"
        if isinstance(reward, Mixture):
            row |= judging_metrics(reward, name)
        elif isinstance(reward, Judge):
            row |= {f"{name}/{leaf}": value for leaf, value in reward.step_metrics().items()}
            row[f"{name}/cost_total"] = reward.metrics()["cost"]
    return row


def scores_table(result: StepResult) -> str:
    """Return one line for each completion: its total, advantage, raw component values and the start of its text."""
    names = list(dict.fromkeys(name for score in result.scores for name in score.components))
    lines = [["rollout", "total", "advantage", *names, "response"]]
    for sample, score, advantage in zip(result.samples, result.scores, result.advantages, strict=True):
        text = one_line(sample.shown)
        response = text if len(text) <= _LONGEST_RESPONSE else f"{text[: _LONGEST_RESPONSE - 1]}…"
        total = str(score.outcome) if score.value is None else f"{score.value:.4g}"
        components = (score.components.get(name) for name in names)
        cells = ("-" if value is None else f"{value:.4g}" for value in components)
        lines.append([sample.rollout_id, total, f"{advantage:.3f}", *cells, response])
    return "\n".join(align(lines))
