"""95 % confidence intervals of accuracies, and a paired comparison of two models.

With one sample per problem, the number of hits is binomial, and the interval is Wilson's. Several samples of a problem
are correlated, so then the interval is a cluster bootstrap over the problems (percentile method). The seed is fixed:
the same values give the same interval. If every problem has a share of 0, or every problem a share of 1, the bootstrap
interval has no width, and Wilson's interval over the problems replaces it.
"""

import math
from dataclasses import dataclass

import numpy as np

from agent_tunix.workbench.checks import wilson_interval

Interval = tuple[float, float]

_RESAMPLINGS = 2000
_QUANTILES = (0.025, 0.975)
# Random numbers drawn at once; this bounds the memory.
_DRAWN_AT_ONCE = 2**20


def share_interval(hits_PN: np.ndarray, counts_PN: np.ndarray) -> Interval | None:
    """Return the interval of a share of samples.

    Args:
        hits_PN: [P, N], True for samples that belong to the share.
        counts_PN: [P, N], True for samples that were scored.

    Returns:
        Lowest and highest share; None if nothing was scored.
    """
    hits_P, counts_P = (hits_PN & counts_PN).sum(axis=1), counts_PN.sum(axis=1)
    has_samples = counts_P > 0
    if not has_samples.any():
        return None
    if hits_PN.shape[1] == 1:
        return wilson_interval(int(hits_P.sum()), int(counts_P.sum()))
    return mean_interval(hits_P[has_samples] / counts_P[has_samples], counts_P[has_samples], is_share=True)


def mean_interval(values_P: np.ndarray, weights_P: np.ndarray | None = None, *, is_share: bool = False) -> Interval:
    """Return the interval of a weighted mean over problems.

    Args:
        values_P: [P] a value for each problem, at least one.
        weights_P: [P] a weight for each problem; None for equal weights.
        is_share: True if values are shares between 0 and 1. A mean of 0 or 1 then has an interval too.
    """
    weights_P = np.ones(len(values_P)) if weights_P is None else weights_P
    rng = np.random.default_rng(0)
    P = len(values_P)
    rows = max(1, _DRAWN_AT_ONCE // P)
    means: list[np.ndarray] = []
    for start in range(0, _RESAMPLINGS, rows):
        drawn_RP = rng.integers(P, size=(min(rows, _RESAMPLINGS - start), P))
        weights_RP = weights_P[drawn_RP]
        means.append((values_P[drawn_RP] * weights_RP).sum(axis=1) / weights_RP.sum(axis=1))
    low, high = (float(end) for end in np.quantile(np.concatenate(means), _QUANTILES))
    if low == high and is_share:
        mean = float(np.average(values_P, weights=weights_P))
        if mean in (0.0, 1.0):
            return wilson_interval(round(mean * P), P)
    return low, high


@dataclass(frozen=True)
class AccuracyComparison:
    """Comparison of two models on the same problems."""

    difference: float  # accuracy of the first model minus that of the second
    interval: Interval  # bootstrap interval of the difference, over the problems
    # Number of problems that only the first model solves. None with several samples per problem.
    only_first: int | None
    # Number of problems that only the second model solves. None with several samples per problem.
    only_second: int | None
    # Two-sided p-value of McNemar's exact test: the probability of a difference of at least this size between these two
    # numbers if the models are equally good. None with several samples per problem.
    p_value: float | None
    num_problems: int  # number of problems that both models were scored on


def compare(first_PN: np.ndarray, second_PN: np.ndarray) -> AccuracyComparison:
    """Compare two models problem by problem.

    Args:
        first_PN: [P, N], True for correct samples of the first model; P is at least 1.
        second_PN: [P, N], the same for the second model. The problems and their order are the same; N may differ.
    """
    differences_P = first_PN.mean(axis=1) - second_PN.mean(axis=1)
    only_first = only_second = p_value = None
    if first_PN.shape[1] == second_PN.shape[1] == 1:
        only_first, only_second = int((differences_P > 0).sum()), int((differences_P < 0).sum())
        p_value = mcnemar_p_value(only_first, only_second)
    return AccuracyComparison(
        difference=float(differences_P.mean()),
        interval=mean_interval(differences_P),
        only_first=only_first,
        only_second=only_second,
        p_value=p_value,
        num_problems=len(differences_P),
    )


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test.

    n problems are solved by exactly one of the two models. Equally good models would solve n/2 of them each:
    p = min(1, 2 Σ_{i ≤ min} C(n, i) / 2ⁿ).

    >>> mcnemar_p_value(1, 9)
    0.021484375
    """
    total = only_first + only_second
    tail = sum(math.comb(total, i) for i in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total))
