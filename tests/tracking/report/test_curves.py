"""Curves of bounded length, and histograms on common bins."""

import numpy as np
import pytest

from agent_tunix.tracking.report.curves import Curves
from agent_tunix.tracking.report.heat import rebin


def test_few_rows_are_points_as_they_are() -> None:
    curves = Curves(num_points=4)
    for step in range(5):
        curves.add({"step": step, "a": step * 2.0})
    assert curves.steps == [0, 1, 2, 3, 4]
    assert curves.get("a") is not None
    assert curves.get("a").y == [0, 2, 4, 6, 8]  # type: ignore[union-attr]


@pytest.mark.parametrize("num_rows", [8, 9, 16, 17, 100, 5000])
def test_many_rows_are_merged_and_none_is_lost(num_rows: int) -> None:
    curves = Curves(num_points=4)
    for step in range(1, num_rows + 1):
        curves.add({"step": step, "a": float(step)})
    curve = curves.get("a")
    assert curve is not None
    assert 4 <= len(curve.y) <= 8
    assert curves.steps[-1] == num_rows
    assert (curve.low[0], curve.high[-1]) == (1, num_rows)
    # The last stretch may be shorter than the others.
    counts = np.diff([0, *curves.steps])
    assert np.average(np.array(curve.y, float), weights=counts) == pytest.approx((num_rows + 1) / 2)
    assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))  # type: ignore[operator]


def test_null_is_no_value_and_never_a_zero() -> None:
    curves = Curves(num_points=2)
    for step, value in enumerate([None, 3.0, None, 5.0, None]):
        curves.add({"step": step, "a": value, "b": None})
    assert curves.get("a").y == [3.0, 5.0, None]  # type: ignore[union-attr]
    assert curves.get("b") is None


def test_what_is_no_number_is_passed_over() -> None:
    curves = Curves()
    curves.add({"step": 1, "text": "x", "flag": True, "histogram": {"counts": [1], "edges": [0, 1]}})
    assert curves.names() == ["step"]


COMMON = np.array([0.0, 1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("counts", "edges", "shares"),
    [
        ([4], [0, 4], [0.25, 0.25, 0.25, 0.25]),
        ([1, 3], [0, 1, 2], [0.25, 0.75, 0, 0]),
        ([2], [1.5, 2.5], [0, 0.5, 0.5, 0]),
        ([5], [2, 2], [0, 0, 1, 0]),  # equal values
        ([5], [4, 4], [0, 0, 0, 1]),  # at the upper end
        ([1], [-9, 0.5], [1, 0, 0, 0]),  # beyond the range
    ],
)
def test_a_histogram_is_divided_by_overlap(counts: list[int], edges: list[float], shares: list[float]) -> None:
    assert rebin([{"counts": counts, "edges": edges}], COMMON)[0] == pytest.approx(shares)


def test_no_histogram_has_no_shares() -> None:
    assert rebin([None, {"counts": [0], "edges": [0, 1]}], COMMON) == [None, None]
