"""Comparison of rewards. Two that differ by no more than the rounding of a sum are equal.

A weighted sum of floats depends on its terms: 0.1 + 0.2 is not 0.3, and 0.7 + 0.2 + 0.1 is below 1. Two rewards a and b
are equal if

    |a − b| ≤ 1e-12 · max(1, |a|, |b|),

which is far above the rounding of a mixture's total, and far below any difference that a reward means to make. The
floor of 1e-12 is for sums that cancel to almost 0.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDING = 1e-12


def are_equal(first: ArrayLike, second: ArrayLike) -> NDArray[np.bool_]:
    """Return True where two rewards are equal up to rounding; False where one is NaN or infinite."""
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    size = np.maximum(1.0, np.maximum(np.abs(one), np.abs(other)))
    return np.asarray(np.isfinite(size) & (np.abs(one - other) <= ROUNDING * size))


def lowest_reaching(least: float) -> float:
    """Return the lowest reward that reaches a threshold: any from this on is at least `least`, up to rounding."""
    return least - ROUNDING * max(1.0, abs(least)) if math.isfinite(least) else least


def highest_within(most: float) -> float:
    """Return the highest reward that is at most a threshold, up to rounding."""
    return -lowest_reaching(-most)


def join_equal(values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with those that are equal up to rounding made identical, by the lowest of them; NaN stays."""
    order_N = np.argsort(values_N, kind="stable")
    sorted_N = values_N[order_N]
    starts_N = np.ones(sorted_N.size, dtype=np.bool_)
    starts_N[1:] = ~are_equal(sorted_N[1:], sorted_N[:-1])
    joined_N = np.empty_like(values_N)
    joined_N[order_N] = sorted_N[starts_N][np.cumsum(starts_N) - 1]
    return joined_N
