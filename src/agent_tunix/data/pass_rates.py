"""Sampling by pass rate: rows that the policy solves about half of the time come more often.

A group whose completions are all right or all wrong has no advantages. Let p be the pass rate of a row: the share of
its completions that are right. The variance within its group is p(1 − p). Let w = max(0.05, 4p(1 − p)), and let a be
the number of steps since the row was last drawn. Step t takes the rows with the highest

    u · w · a / 4        if the row was drawn before
    u · mean(w)          if it was not; the mean is over the rows that were

where u is uniform on [0.5, 1.5), a function of seed, step and row. So the time between two draws of a row is inversely
proportional to w. Each row returns; rows that are always or never solved return 20 times less often than the best.
After a draw, p is the mean of its old value and the new share. At least a quarter of each batch is new, if possible.

p(1 − p) is the learnability of https://arxiv.org/abs/2502.12272, which samples candidates and keeps the best.
https://arxiv.org/abs/2510.13786 leaves solved rows out for good. Here every row returns, because it may have changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.data.batches import RowIndices
from agent_tunix.data.mixing import Interleaving
from agent_tunix.data.set_shares import LEAST_WEIGHT, SetShareOrder

_REST_STEPS = 4
_ROWS_PER_NEW_ONE = 4
# Pass rates up to which a row counts as hopeless, and from which as easy.
_HOPELESS, _EASY = 0.1, 0.9


@dataclass
class PassRateOrder:
    """The rows of every batch, given the pass rates observed so far.

    The batch of the step after the last observed one is a pure function of the seed, the step and the observations.
    Batches of later steps hold the rows that come next in rank, for further rounds of dynamic sampling.
    """

    rows: Sequence[RowIndices]
    interleaving: Interleaving  # the order in which the sets take turns
    batch_size: int  # rows per batch
    num_steps: int
    seed: int
    shares: SetShareOrder | None = None  # the rows of each set, if they do not follow the interleaving
    _observed: int = field(init=False, default=0)
    _rates: NDArray[np.float64] = field(init=False, repr=False)
    _last: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without observations."""
        self.load_state_dict({}, 0)

    def batch_indices(self, step: int) -> RowIndices:
        """Return the [batch_size] row indices of one batch; `step` is from 1 to `num_steps`.

        A row occurs twice only if a set has fewer rows than its share of the batch.
        """
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        scores = self._score()
        return np.concatenate(
            [
                self._take(rows[np.argsort(-scores[rows], kind="stable")], counts)
                for rows, counts in zip(self.rows, self._counts(step), strict=True)
            ]
        )

    def _counts(self, step: int) -> list[list[int]]:
        """Return the rows of each set in the batches from the one after the last observed to that of `step`."""
        if self.shares is not None:
            return [list(map(int, counts)) for counts in self.shares.counts(step).T]
        num_batches = (step - 1 - self._observed) % self.num_steps + 1
        first, last = (step - 1) * self.batch_size, step * self.batch_size
        counts = zip(self.interleaving.counts(first), self.interleaving.counts(last), strict=True)
        return [[after - before] * num_batches for before, after in counts]

    def observe(self, step: int, rates: Mapping[int, float]) -> dict[str, float | None]:
        """Record the pass rates of a step by row (NaN if no completion was scored); return metrics of all rows."""
        for row, rate in rates.items():
            if np.isnan(rate):
                pass
            elif np.isnan(self._rates[row]):
                self._rates[row] = rate
            else:
                self._rates[row] = (self._rates[row] + rate) / 2
            self._last[row] = step
        self._observed = step
        unseen = float((self._last == 0).mean())
        hopeless, easy = float((self._rates <= _HOPELESS).mean()), float((self._rates >= _EASY).mean())
        return {
            "sampling/rows/unseen": unseen,
            "sampling/rows/hopeless": hopeless,
            "sampling/rows/useful": float(((self._rates > _HOPELESS) & (self._rates < _EASY)).mean()),
            "sampling/rows/easy": easy,
            **(self.shares.observe(step, rates) if self.shares is not None else {}),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the observations as JSON types; only rows that were drawn take space."""
        rows = np.flatnonzero(self._last)
        rates = [None if np.isnan(rate) else float(rate) for rate in self._rates[rows]]
        state = {"rows": rows.tolist(), "last": self._last[rows].tolist(), "rates": rates}
        return state | ({"sets": self.shares.state_dict()} if self.shares is not None else {})

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Restore the observations that `state_dict` returned after a step; {} means none."""
        num_rows = sum(len(rows) for rows in self.rows)
        self._observed = step
        if self.shares is not None:
            self.shares.load_state_dict(state.get("sets", {}), step)
        self._rates, self._last = np.full(num_rows, np.nan), np.zeros(num_rows, np.int64)
        rows = np.array(state.get("rows", []), np.int64)
        self._last[rows] = state.get("last", [])
        self._rates[rows] = np.array(state.get("rates", []), np.float64)

    def _score(self) -> NDArray[np.float64]:
        step = self._observed + 1
        weights = np.maximum(LEAST_WEIGHT, 4 * self._rates * (1 - self._rates))  # NaN without a rate
        has_rate = ~np.isnan(weights)
        typical = float(weights[has_rate].mean()) if has_rate.any() else 1.0
        rested = (step - self._last) / _REST_STEPS
        scores = np.where(self._last > 0, np.where(has_rate, weights, typical) * rested, typical)
        random = np.random.PCG64([self.seed, step]).random_raw(len(scores))
        return np.asarray(scores * (0.5 + random / 2.0**64))

    def _take(self, ranked: RowIndices, counts: Sequence[int]) -> RowIndices:
        """Return the rows of a set in the last of some batches; `counts` has the number of each of these batches."""
        rows_left = rows = ranked
        for count in counts:
            if len(ranked) < count:
                rows = np.resize(ranked, count)
                continue
            rows_left = rows_left if len(rows_left) >= count else ranked
            is_new = self._last[rows_left] == 0
            first_new = np.flatnonzero(is_new)[: -(-count // _ROWS_PER_NEW_ONE)]
            is_chosen = np.zeros(len(rows_left), np.bool_)
            is_chosen[first_new] = True
            is_chosen[np.flatnonzero(~is_chosen)[: count - len(first_new)]] = True
            rows, rows_left = rows_left[is_chosen], rows_left[~is_chosen]
        return rows
