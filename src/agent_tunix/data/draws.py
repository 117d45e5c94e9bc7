"""The order in which the rows of one set are drawn, without end.

Draws are numbered from 0. The row of a draw is a pure function of the set, the seeds and its number, so the rows of any
step can be computed without those of earlier steps. A stream of rows is shuffled within a bounded buffer.
"""

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from agent_tunix.config.schema import CurriculumConfig
from agent_tunix.data.batches import RowIndices, permute
from agent_tunix.data.dropped import RowError
from agent_tunix.errors import DataError

# Passes kept in the cache: the stages of a curriculum and the sets of a mixture take turns.
_PASSES_KEPT = 16


class Draws(Protocol):
    """An order in which rows are drawn from a set."""

    def rows(self, first: int, last: int) -> RowIndices:
        """Return the dataset's row index of each draw from number `first` to `last` - 1."""
        ...


@dataclass(frozen=True)
class PassDraws:
    """Repeated passes over the rows, each with its own shuffle."""

    num_rows: int  # rows of the set, at least 1
    seeds: tuple[int, ...]  # seeds of the shuffle, different for each set
    shuffle: bool = True  # if False, rows come in their own order

    def rows(self, first: int, last: int) -> RowIndices:
        """Return row indices for the draws from `first` up to but not including `last`; they may span passes."""
        parts = [np.empty(0, np.int64)]
        while first < last:
            number, start = divmod(first, self.num_rows)
            end = min(start + last - first, self.num_rows)
            order = _pass_order(self.num_rows, (*self.seeds, number)) if self.shuffle else np.arange(self.num_rows)
            parts.append(order[start:end])
            first += end - start
        return np.concatenate(parts)


@functools.lru_cache(maxsize=_PASSES_KEPT)
def _pass_order(num_rows: int, seeds: tuple[int, ...]) -> RowIndices:
    order = permute(np.arange(num_rows), *seeds)
    order.flags.writeable = False
    return order


@dataclass(frozen=True)
class CurriculumDraws:
    """A curriculum, easy rows first: K stages of equal length over the first `until` of all draws, then every row.

    The n rows are sorted by difficulty. With d of D draws done and k = ⌊d·K / (until·D)⌋, the next draw comes from the
    rows of rank

    - [0, ⌈n·(k+1)/K⌉) if kind is `baby_steps`: each stage adds the next harder rows
      (Spitkovsky et al. 2010, https://aclanthology.org/N10-1116);
    - [⌈n·k/K⌉, ⌈n·(k+1)/K⌉) if kind is `one_pass`: each stage has its own rows
      (Bengio et al. 2009, https://doi.org/10.1145/1553374.1553380);
    - [0, n) from k = K on.

    Within a stage, draws go through its rows in passes, each with its own shuffle. Rows of equal difficulty are ranked
    in random order. Without shuffling, each pass goes through the rows by difficulty, and equal rows in dataset order.
    """

    difficulties: Sequence[float]  # [n] difficulty of each row; higher is harder
    num_draws: int  # D, the draws of the whole run
    curriculum: CurriculumConfig  # gives the kind, K and `until`
    seeds: tuple[int, ...]  # seeds of the shuffles, different for each set
    shuffle: bool = True  # True if rows are shuffled
    _ranked: RowIndices = field(init=False, repr=False, compare=False)
    _starts: Sequence[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort the rows by difficulty; raise DataError if there are more stages than rows."""
        stages, num_rows = self.curriculum.stages, len(self.difficulties)
        if stages > num_rows:
            raise DataError(
                f"data.curriculum.stages={stages} must be at most the number of rows, {num_rows}; set "
                f"data.curriculum.stages={num_rows} or less",
                code="invalid_config",
            )
        rows = np.arange(num_rows)
        if self.shuffle:
            rows = permute(rows, *self.seeds, 0)
        values = np.asarray(self.difficulties, np.float64)[rows]
        object.__setattr__(self, "_ranked", rows[np.argsort(values, kind="stable")])
        length = self.curriculum.until * self.num_draws
        # Round first, so that 0.3 · 10 is exactly 3 draws.
        starts = [math.ceil(round(length * stage / stages, 6)) for stage in range(stages + 1)]
        object.__setattr__(self, "_starts", starts)

    def rows(self, first: int, last: int) -> RowIndices:
        """Return row indices for the draws from `first` up to but not including `last`."""
        parts = [np.empty(0, np.int64)]
        while first < last:
            stage = bisect.bisect_right(self._starts, first) - 1
            start = self._starts[stage]
            end = last if stage == self.curriculum.stages else min(last, self._starts[stage + 1])
            pool = self._pool(stage)
            draws = PassDraws(len(pool), (*self.seeds, stage + 1), self.shuffle)
            parts.append(pool[draws.rows(first - start, end - start)])
            first = end
        return np.concatenate(parts)

    def _pool(self, stage: int) -> RowIndices:
        num_rows, stages = len(self._ranked), self.curriculum.stages
        if stage == stages:
            return self._ranked
        low = math.ceil(num_rows * stage / stages) if self.curriculum.kind == "one_pass" else 0
        return self._ranked[low : math.ceil(num_rows * (stage + 1) / stages)]


def read_difficulty(columns: Mapping[str, Any], curriculum: CurriculumConfig) -> float:
    """Return the difficulty of a row: the number in its column, or the index of its value in `curriculum.order`.

    Text that spells a number counts as that number, because CSV files hold only text.

    Raises:
        RowError: The column is missing, or its value is neither a number nor in `curriculum.order`.
    """
    name = curriculum.column
    if name is None or name not in columns:
        raise RowError(f"no column {name!r}", f"it has {', '.join(map(repr, columns))}")
    value = columns[name]
    if curriculum.order:
        for place, level in enumerate(curriculum.order):
            if value == level or str(value) == str(level):
                return float(place)
        raise RowError(f"column {name!r} is not in data.curriculum.order", f"it is {value!r:.80}")
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise RowError(f"column {name!r} is not a number, and data.curriculum.order is empty", f"it is {value!r:.80}")
    return number


T = TypeVar("T")


def shuffle_within(items: Iterator[T], size: int, seeds: tuple[int, ...]) -> Iterator[T]:
    """Yield the items in a random order that depends only on the seeds.

    A buffer holds `size` items. Each draw yields one of these at random, and the next item takes its place; the rest
    come in random order at the end. So an item comes at most `size` places early, but may come arbitrarily late.
    """
    random = np.random.PCG64(list(seeds))
    buffer = list(itertools.islice(items, size))
    for item in items:
        place = int(random.random_raw()) % size
        yield buffer[place]
        buffer[place] = item
    for place in permute(np.arange(len(buffer)), *seeds, 1):
        yield buffer[place]


def endless(read_pass: Callable[[int], Iterator[T]]) -> Iterator[T]:
    """Return an iterator that repeats passes over a source forever.

    Args:
        read_pass: Receives the number of a pass, counted from 0, and returns its items, at least one.
    """
    return itertools.chain.from_iterable(map(read_pass, itertools.count()))
