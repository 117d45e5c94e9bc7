"""Scores of a run's own reward for completions of held-out problems."""

import math
from collections.abc import Sequence

import numpy as np

from agent_tunix.evaluation.intervals import mean_interval
from agent_tunix.rewards import Score


def reward_metrics(
    scores: Sequence[Score], components: Sequence[str], passes: int
) -> tuple[dict[str, float | None], list[list[float | None]]]:
    """Return the metrics and totals of completions that the run's own reward scored.

    `scores`: [P * N] scores of the N completions of each of P problems.
    `passes`: Number N of completions of a problem.

    Returns:
        Metrics: `eval/rewards/total/mean` with its 95 % interval over the problems, `eval/rewards/<component>/mean` of
        the raw values, and `eval/rewards/num_unscored`. A mean is None if nothing was scored. And the totals, [P][N],
        None for unscored completions.
    """
    totals = [one.value for one in scores]
    metrics: dict[str, float | None] = {
        "eval/rewards/total/mean": _mean(totals),
        "eval/rewards/num_unscored": sum(total is None for total in totals),
    }
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
