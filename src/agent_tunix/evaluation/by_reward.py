"""Scores of a run's own reward for completions of held-out problems."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.evaluation.intervals import mean_interval
from agent_tunix.rewards import Mixture, Sample, Score
from agent_tunix.runs.reward_setup import make_reward_runner


def score_held_out(
    mixture: Mixture, config: Config, samples: Sequence[Sequence[Sample]], step: int
) -> tuple[dict[str, float | None], list[list[float | None]]]:
    """Score completions with the reward that the run was trained on.

    Args:
        mixture: The reward.
        config: The run's, for the execution and the limits of rewards.
        samples: [P][N] samples. The N samples of a problem are a group.
        step: Step of the checkpoint. Component weights that follow a schedule take their value at this step.

    Returns:
        Metrics: `eval/rewards/total/mean` with its 95 % interval over the problems, `eval/rewards/<component>/mean` of
        the raw values, and `eval/rewards/num_unscored`. A mean is None if nothing was scored. And the totals, [P][N],
        None for unscored completions.
    """
    with make_reward_runner(mixture, config.rewards) as runner:
        return reward_metrics(runner.reward.score, [one.name for one in mixture.components], samples, step)


def reward_metrics(
    score: Callable[[Sequence[Sample]], list[Score]],
    components: Sequence[str],
    samples: Sequence[Sequence[Sample]],
    step: int,
    max_steps: int = 0,
) -> tuple[dict[str, float | None], list[list[float | None]]]:
    """Score completions and return the metrics and totals of `score_held_out`.

    Args:
        score: Scores samples with the run's reward.
        components: Names of its components.
        samples: [P][N] samples.
        step: Step of the policy.
        max_steps: Number of steps of the run; 0 if it is not known.
    """
    flat = [dataclasses.replace(one, step=step, max_steps=max_steps) for of_problem in samples for one in of_problem]
    scores = score(flat)
    totals = [one.value for one in scores]
    metrics: dict[str, float | None] = {
        "eval/rewards/total/mean": _mean(totals),
        "eval/rewards/num_unscored": sum(total is None for total in totals),
    }
    passes = len(samples[0])
    rows = [totals[start : start + passes] for start in range(0, len(totals), passes)]
    means = np.array([mean for row in rows if (mean := _mean(row)) is not None])
    if means.size:
        counts = np.array([sum(value is not None for value in row) for row in rows])
        low, high = mean_interval(means, counts[counts > 0])
        metrics |= {"eval/rewards/total/mean_low": low, "eval/rewards/total/mean_high": high}
    for name in components:
        metrics[f"eval/rewards/{name}/mean"] = _mean([one.components.get(name) for one in scores])
    return metrics, rows


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
