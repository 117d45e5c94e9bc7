"""Moments, percentiles, saturation and correlation against NumPy, series by series."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agent_tunix.rewards.statistics.series import describe_in_detail

Array = np.ndarray[Any, np.dtype[np.float64]]

VALUES = st.floats(-50, 50).map(lambda value: round(value, 2)) | st.sampled_from([0.0, 1.0]) | st.just(np.nan)


def detail_of(values: Any, lengths: Any = None, declared: tuple[float, float] | None = None) -> dict[str, Any]:
    found = describe_in_detail(
        ["x"],
        np.array([values], float),
        bins=10,
        ranges={"x": declared},
        lengths_B=None if lengths is None else np.array(lengths, float),
    )
    return {name.removeprefix("x/"): value for name, value in found.items()}


@given(arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 20)), elements=VALUES), st.integers(0, 2**32 - 1))
def test_each_series_equals_a_numpy_oracle(values_SB: Array, seed: int) -> None:
    lengths_B = np.random.default_rng(seed).integers(1, 6, values_SB.shape[1]).astype(float)
    names = [f"s{row}" for row in range(len(values_SB))]
    found = describe_in_detail(names, values_SB, bins=4, ranges={}, lengths_B=lengths_B)
    for name, row_B in zip(names, values_SB, strict=True):
        kept_B = ~np.isnan(row_B)
        values, lengths = row_B[kept_B], lengths_B[kept_B]
        if not values.size:
            assert all(value is None for key, value in found.items() if key.startswith(f"{name}/"))
            continue
        expected = {
            "mean": values.mean(),
            "std": values.std(),
            "variance": values.var(),
            "min": values.min(),
            "max": values.max(),
            "distinct": len(set(values.tolist())),
            **{f"p{share}": np.quantile(values, share / 100) for share in (10, 50, 90)},
        }
        for leaf, value in expected.items():
            assert found[f"{name}/{leaf}"] == pytest.approx(value, abs=1e-9), leaf
        counts, edges = np.histogram(values, bins=4)
        assert found[f"{name}/histogram"] == {"counts": counts.tolist(), "edges": edges.tolist()}
        varies = values.min() < values.max()
        assert found[f"{name}/at_min"] == (pytest.approx((values == values.min()).mean()) if varies else None)
        assert found[f"{name}/at_max"] == (pytest.approx((values == values.max()).mean()) if varies else None)
        correlation = found[f"{name}/length_correlation"]
        if varies and lengths.min() < lengths.max():
            assert correlation == pytest.approx(np.corrcoef(values, lengths)[0, 1], abs=1e-9)
        else:
            assert correlation is None


@pytest.mark.parametrize(
    ("values", "declared", "at_min", "at_max"),
    [
        ([0.0, 0.0, 0.5, 1.0], (0.0, 1.0), 0.5, 0.25),
        ([0.5, 0.5], (0.0, 1.0), 0.0, 0.0),  # constant, and at neither end
        ([0.0, 0.0], (0.0, 1.0), 1.0, 0.0),  # a declared range tells which end it is
        ([0.0, 0.0], None, None, None),
        ([0.25, 0.5], (0.0, 1.0), 0.0, 0.0),  # the batch's own ends are not the range's
        ([0.1 + 0.2, 0.0], (0.0, 0.3), 0.5, 0.5),  # a sum's rounding
        ([-3.0, 2.0], (0.0, 1.0), 0.5, 0.5),  # beyond its range
        ([1.0, 2.0], (0.0, np.inf), 0.0, 0.0),
        ([np.nan, 1.0], (0.0, 1.0), 0.0, 1.0),  # the unscored are left out
        ([1.0, 2.0], (1.0, 1.0), None, None),
    ],
)
def test_saturation_is_at_the_ends_of_the_declared_range(
    values: list[float], declared: tuple[float, float] | None, at_min: float | None, at_max: float | None
) -> None:
    found = detail_of(values, declared=declared)
    assert (found["at_min"], found["at_max"]) == (at_min, at_max)


@pytest.mark.parametrize(
    ("values", "lengths", "expected"),
    [
        ([1.0, 2.0, 3.0], [10, 20, 30], 1.0),
        ([3.0, 2.0, 1.0], [10, 20, 30], -1.0),
        ([0.1, 0.1, 0.1], [10, 20, 30], None),
        ([1.0, 2.0, 3.0], [7, 7, 7], None),
        ([1.0, np.nan, 2.0], [7, 90, 7], None),  # of the scored ones alone
        ([1e60, -1e60], [1, 2], -1.0),
        ([0.0, 5e-324], [1, 2], 1.0),
        ([1.0], [4], None),
    ],
)
def test_the_correlation_with_length_is_pearsons(
    values: list[float], lengths: list[int], expected: float | None
) -> None:
    assert detail_of(values, lengths)["length_correlation"] == (
        None if expected is None else pytest.approx(expected, abs=1e-12)
    )


@example(np.array([[1e60, -1e60]]))
@example(np.array([[0.0, 5e-324]]))
@example(np.array([[1.0, 1.0 + 2e-16]]))
@given(arrays(np.float64, st.tuples(st.just(1), st.integers(1, 8)), elements=st.floats(-1e60, 1e60)))
def test_no_size_of_value_makes_a_number_that_json_lacks(values_SB: Array) -> None:
    lengths_B = np.arange(values_SB.shape[1], dtype=float)
    found: dict[str, Any] = dict(describe_in_detail(["x"], values_SB, bins=10, ranges={}, lengths_B=lengths_B))
    json.dumps(found, allow_nan=False)
    assert sum(found["x/histogram"]["counts"]) == values_SB.size
    assert len(found["x/histogram"]["edges"]) == len(found["x/histogram"]["counts"]) + 1


def test_no_completions_give_null() -> None:
    assert set(detail_of([], []).values()) == {None}
