"""How far a share that was measured on some problems may be from that on all of them: 95 % intervals, and two paired.

One sample a problem is a binomial experiment: the interval is Wilson's. Several samples of a problem resemble each
other, so then the problems are what is drawn again (a cluster bootstrap, percentile method, with a fixed seed: the
same figures give the same interval). Where not one resampling differs from another, as when every problem is solved,
the bootstrap has nothing to say and Wilson's interval over the problems stands in for it.
"""

import math
from dataclasses import dataclass

import numpy as np

from agent_tunix.workbench.checks import wilson_interval

Interval = tuple[float, float]

_RESAMPLINGS = 2000
_QUANTILES = (0.025, 0.975)
# Numbers drawn at once, which bounds the memory.
_DRAWN_AT_ONCE = 2**20


def share_interval(hits_PN: np.ndarray, counts_PN: np.ndarray) -> Interval | None:
    """The interval of a share of samples.

    Args:
        hits_PN: [P, N], whether each of the N samples of the P problems is one of those that are counted.
        counts_PN: [P, N], whether the sample could be judged at all.

    Returns:
        Lowest and highest share; None where nothing could be judged.
    """
    hits_P, counts_P = (hits_PN & counts_PN).sum(axis=1), counts_PN.sum(axis=1)
    kept = counts_P > 0
    if not kept.any():
        return None
    if hits_PN.shape[1] == 1:
        return wilson_interval(int(hits_P.sum()), int(counts_P.sum()))
    return mean_interval(hits_P[kept] / counts_P[kept], counts_P[kept], is_share=True)


def mean_interval(values_P: np.ndarray, weights_P: np.ndarray | None = None, *, is_share: bool = False) -> Interval:
    """The interval of a weighted mean over problems.

    Args:
        values_P: [P] a value for each problem, at least one.
        weights_P: [P] its weight; None: all alike.
        is_share: Whether values are between 0 and 1, so that a mean of several equal ones has an interval as well.
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
    """Two models on the same problems.

    Attributes:
        difference: Accuracy of the first less that of the second.
        interval: Of the difference, by drawing problems again.
        only_first: Problems that the first solves in every sample that counts, and the second does not; of one sample a
            problem.
        only_second: The other way round.
        p_value: Of McNemar's exact test, two-sided: how probable a difference of this size between these two numbers is
            where the models are equally good. None for several samples a problem.
        num_problems: Problems that both were judged on.
    """

    difference: float
    interval: Interval
    only_first: int | None
    only_second: int | None
    p_value: float | None
    num_problems: int


def compare(first_PN: np.ndarray, second_PN: np.ndarray) -> AccuracyComparison:
    """Compare two models problem by problem.

    Args:
        first_PN: [P, N] whether each sample of each problem is right, of the first model; at least one problem.
        second_PN: The same of the second, the same problems in the same order.
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
    """McNemar's exact test, two-sided.

    Of n problems that just one of two models solves, equally good models would solve n/2 each:
    p = min(1, 2 Σ_{i ≤ min} C(n, i) / 2ⁿ).

    >>> mcnemar_p_value(1, 9)
    0.021484375
    """
    total = only_first + only_second
    tail = sum(math.comb(total, i) for i in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**total))
