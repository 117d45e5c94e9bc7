"""Descriptions of batches of numbers: moments, percentiles, a histogram, and the correlation with length.

All series of a step are described at once. Axes: S series, B completions. NaN marks a missing value.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.rounding import highest_within, lowest_reaching

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

PERCENTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


class Histogram(TypedDict):
    """A histogram with `counts[i]` values between `edges[i]` and `edges[i + 1]`."""

    counts: list[int]
    edges: list[float]


Metric = float | int | Histogram | None


def describe(names: Sequence[str], values_SB: Array) -> dict[str, Metric]:
    """Return `<name>/{mean,std,min,max}` of each series; None if a series has no value.

    The standard deviation has the divisor n, and is 0 for equal values even if their mean is rounded. All values have
    equal weight, as completions have in training.
    """
    known_SB = ~np.isnan(values_SB)
    counts_S = known_SB.sum(axis=1)
    low_S = np.where(known_SB, values_SB, np.inf).min(axis=1, initial=np.inf)
    high_S = np.where(known_SB, values_SB, -np.inf).max(axis=1, initial=-np.inf)
    mean_S = np.where(known_SB, values_SB, 0.0).sum(axis=1) / np.maximum(counts_S, 1)
    mean_S = np.clip(mean_S, low_S, np.maximum(low_S, high_S))
    deviations_SB = np.where(known_SB, values_SB - mean_S[:, None], 0.0)
    std_S = np.sqrt((deviations_SB**2).sum(axis=1) / np.maximum(counts_S, 1))
    std_S = np.where(low_S < high_S, std_S, 0.0)
    leaves = {"mean": mean_S, "std": std_S, "min": low_S, "max": high_S}
    return _by_name(names, {leaf: values.tolist() for leaf, values in leaves.items()}, counts_S > 0)


def describe_in_detail(
    names: Sequence[str],
    values_SB: Array,
    *,
    bins: int,
    ranges: Mapping[str, tuple[float, float] | None],
    lengths_B: Array | None = None,
) -> dict[str, Metric]:
    """Return the metrics of `describe`, and the distribution of the values.

    `ranges` has the declared range of each series; it is None or missing if undeclared. `lengths_B` are the lengths of
    the completions in tokens.

    Returns:
        In addition to `describe`, under each name:

        - `variance` (divisor n) and `histogram`;
        - `p10`, `p50`, `p90`: percentiles, interpolated linearly;
        - `distinct`: the number of different values;
        - `at_min`, `at_max`: the shares of values at the ends of the declared range, which show saturation. Without a
          declared range, the ends are the lowest and highest value of the batch; None if these are equal;
        - `length_correlation`: Pearson's coefficient with the length, -1 to 1; None if either is constant; absent
          without lengths.
    """
    sorted_SB = np.sort(values_SB, axis=1)  # NaN last
    counts_S = (~np.isnan(values_SB)).sum(axis=1)
    metrics = describe(names, values_SB)
    detail: dict[str, list[Any]] = {
        leaf: _percentile(sorted_SB, counts_S, share).tolist() for leaf, share in PERCENTILES.items()
    }
    detail["distinct"] = (1 + (sorted_SB[:, 1:] > sorted_SB[:, :-1]).sum(axis=1)).tolist()
    if lengths_B is not None:
        detail["length_correlation"] = correlations(values_SB, lengths_B)
    for leaf in ("variance", "histogram", "at_min", "at_max"):
        detail[leaf] = [None] * len(names)
    for row, (name, count) in enumerate(zip(names, counts_S.tolist(), strict=True)):
        if not count:
            continue
        values = sorted_SB[row, :count]
        std = metrics[f"{name}/std"]
        detail["variance"][row] = std * std if isinstance(std, float) else None
        detail["histogram"][row] = _histogram(values, bins)
        detail["at_min"][row], detail["at_max"][row] = _saturation(values, ranges.get(name))
    return metrics | _by_name(names, detail, counts_S > 0)


def _by_name(names: Sequence[str], leaves: Mapping[str, Sequence[Metric]], known_S: Mask) -> dict[str, Metric]:
    is_known = known_S.tolist()
    return {
        f"{name}/{leaf}": leaf_values[row] if is_known[row] else None
        for leaf, leaf_values in leaves.items()
        for row, name in enumerate(names)
    }


def _percentile(sorted_SB: Array, counts_S: NDArray[np.int_], share: float) -> Array:
    """Interpolate sorted values linearly at `share · (n - 1)`, as `np.quantile` does; NaN if B is 0."""
    if not sorted_SB.shape[1]:
        return np.full(len(sorted_SB), np.nan)
    rows_S = np.arange(len(sorted_SB))
    places_S = share * np.maximum(counts_S - 1, 0)
    below_S = np.floor(places_S).astype(int)
    low_S = sorted_SB[rows_S, below_S]
    high_S = sorted_SB[rows_S, np.minimum(below_S + 1, np.maximum(counts_S - 1, 0))]
    return np.asarray(low_S + (high_S - low_S) * (places_S - below_S))


def _histogram(values: Array, bins: int) -> Histogram:
    """Return the result of `np.histogram`, for sorted values."""
    low, high = float(values[0]), float(values[-1])
    edges = np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 0.5, high + 0.5, bins + 1)
    if not (edges[1:] > edges[:-1]).all():  # the range is too narrow to be divided in floats
        return {"counts": [values.size], "edges": [low, high]}
    places = np.searchsorted(values, edges)
    places[-1] = values.size  # the last bin includes both edges
    return {"counts": np.diff(places).tolist(), "edges": edges.tolist()}


def _saturation(values: Array, declared: tuple[float, float] | None) -> tuple[float | None, float | None]:
    low, high = (float(values[0]), float(values[-1])) if declared is None else declared
    if not low < high:
        return None, None
    num_low = int(np.searchsorted(values, highest_within(low), side="right"))
    num_high = values.size - int(np.searchsorted(values, lowest_reaching(high), side="left"))
    return num_low / values.size, num_high / values.size


def correlations(values_SB: Array, lengths_B: Array) -> list[float | None]:
    """Return Pearson's coefficient of each series with other numbers, such as lengths; None if either is constant."""
    known_SB = ~np.isnan(values_SB)
    lengths_SB = _scaled_deviations(np.broadcast_to(lengths_B, values_SB.shape), known_SB)
    values_SB = _scaled_deviations(values_SB, known_SB)
    covariance_S = (values_SB * lengths_SB).sum(axis=1)
    size_S = np.sqrt((values_SB**2).sum(axis=1) * (lengths_SB**2).sum(axis=1))
    defined_S = size_S > 0
    found_S = np.clip(covariance_S / np.where(defined_S, size_S, 1.0), -1.0, 1.0)
    return [value if defined else None for value, defined in zip(found_S.tolist(), defined_S.tolist(), strict=True)]


def _scaled_deviations(values_SB: Array, known_SB: Mask) -> Array:
    """Return deviations from the mean divided by the range, so that squares stay finite; 0 for a constant series."""
    counts_S1 = np.maximum(known_SB.sum(axis=1, keepdims=True), 1)
    low_S1 = np.where(known_SB, values_SB, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high_S1 = np.where(known_SB, values_SB, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    varies_S1 = low_S1 < high_S1
    spread_S1 = np.where(varies_S1, high_S1 - np.where(varies_S1, low_S1, 0.0), 1.0)
    placed_SB = np.where(known_SB & varies_S1, (values_SB - np.where(varies_S1, low_S1, 0.0)) / spread_S1, 0.0)
    return np.where(known_SB & varies_S1, placed_SB - placed_SB.sum(axis=1, keepdims=True) / counts_S1, 0.0)
