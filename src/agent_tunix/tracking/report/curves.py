"""Scalar metrics of a run as curves of bounded length, in memory that does not grow with the run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = Callable[[], Iterable[Mapping[str, Any]]]
"""Gives the rows of metrics.jsonl, one after the other, each time it is called."""

_COUNT, _SUM, _LOW, _HIGH = range(4)


@dataclass(frozen=True)
class Curve:
    """A metric over the steps; None where it has no value."""

    y: list[float | None]  # mean of each stretch of steps
    low: list[float | None]  # minimum of each stretch
    high: list[float | None]  # maximum of each stretch


class Curves:
    """An accumulator of rows of metrics that returns every scalar as a curve.

    At first each row is a point. When there are `2 * num_points` points, neighbours are merged in pairs, and each point
    then stands for twice as many rows. This repeats as rows are added.

    Args:
        num_points: Half the maximum number of points of a curve.
    """

    def __init__(self, num_points: int = 200) -> None:
        self._capacity = 2 * num_points
        self._rows_per_point = 1
        self._num_rows = 0
        self._steps = np.zeros(self._capacity, dtype=np.int64)
        self._table: dict[str, NDArray[np.float64]] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows added."""
        return self._num_rows

    @property
    def rows_per_point(self) -> int:
        """Maximum number of rows behind a point."""
        return self._rows_per_point

    @property
    def steps(self) -> list[int]:
        """Last step of each point's stretch."""
        return [int(step) for step in self._steps[: self._num_points]]

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the next row; values that are not numbers are ignored."""
        if self._num_rows == self._capacity * self._rows_per_point:
            self._merge_neighbours()
        place = self._num_rows // self._rows_per_point
        self._steps[place] = row["step"]
        self._num_rows += 1
        for name, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                column = self._table.get(name)
                if column is None:
                    column = self._table[name] = _empty(self._capacity)
                column[_COUNT, place] += 1
                column[_SUM, place] += value
                column[_LOW, place] = min(column[_LOW, place], value)
                column[_HIGH, place] = max(column[_HIGH, place], value)

    def names(self) -> list[str]:
        """Return every metric that has a value, in order of appearance."""
        return list(self._table)

    def get(self, name: str) -> Curve | None:
        """Return the curve of a metric; None if no row has a value of it."""
        column = self._table.get(name)
        if column is None:
            return None
        column = column[:, : self._num_points]
        present = column[_COUNT] > 0
        mean = np.divide(column[_SUM], column[_COUNT], where=present, out=np.zeros(present.shape))
        return Curve(*(_or_none(values, present) for values in (mean, column[_LOW], column[_HIGH])))

    def span(self, name: str) -> tuple[float, float] | None:
        """Return the minimum and maximum of a metric over the run; None if it has no value."""
        column = self._table.get(name)
        return None if column is None else (float(column[_LOW].min()), float(column[_HIGH].max()))

    @property
    def _num_points(self) -> int:
        return -(-self._num_rows // self._rows_per_point)

    def _merge_neighbours(self) -> None:
        half = self._capacity // 2
        self._steps[:half] = self._steps[1::2]
        for name, column in self._table.items():
            first, second = column[:, 0::2], column[:, 1::2]
            merged = _empty(self._capacity)
            merged[:, :half] = first + second
            merged[_LOW, :half] = np.minimum(first[_LOW], second[_LOW])
            merged[_HIGH, :half] = np.maximum(first[_HIGH], second[_HIGH])
            self._table[name] = merged
        self._rows_per_point *= 2


def _empty(capacity: int) -> NDArray[np.float64]:
    column = np.zeros((4, capacity))
    column[_LOW], column[_HIGH] = np.inf, -np.inf
    return column


def _or_none(values: NDArray[np.float64], present: NDArray[np.bool_]) -> list[float | None]:
    return [float(value) if there else None for value, there in zip(values, present, strict=True)]
