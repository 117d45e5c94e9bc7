"""Weighted mixing of several sets.

After n draws, set i has had as many as Sainte-Laguë's method gives seats to a party of weight w_i in a house of n: its
j-th draw (from 0) has the key (j + 1/2) / w_i, and the draws of all sets are sorted by it. So any stretch of draws, a
batch included, is as close to the weights as whole rows allow. The count of a set never falls as n grows, and it is
computed directly for any step, not accumulated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_tunix.data.batches import RowIndices
from agent_tunix.data.draws import Draws


@dataclass(frozen=True)
class Interleaving:
    """The order in which sets take turns."""

    weights: tuple[float, ...]  # weight of each set, above 0; they need not sum to 1

    def counts(self, num_draws: int) -> list[int]:
        """Return how many of the first `num_draws` draws each set has had."""
        # A closed form gives each count to within half a draw per set; the remaining draws are assigned one by one.
        total, slack = math.fsum(self.weights), len(self.weights) // 2 + 1
        counts = [max(math.floor(num_draws * weight / total + 0.5) - slack, 0) for weight in self.weights]
        while sum(counts) < num_draws:
            counts[min(range(len(counts)), key=lambda number: self._place(number, counts[number]))] += 1
        return counts

    def draws(self, first: int, last: int) -> list[int]:
        """Return the set of each draw from `first` up to but not including `last`."""
        before, after = self.counts(first), self.counts(last)
        places = [
            self._place(number, draw)
            for number, (low, high) in enumerate(zip(before, after, strict=True))
            for draw in range(low, high)
        ]
        return [number for _, number in sorted(places)]

    def _place(self, number: int, draw: int) -> tuple[float, int]:
        return (draw + 0.5) / self.weights[number], number


@dataclass(frozen=True)
class MixedOrder:
    """The rows of every batch of a mixture or curriculum."""

    rows: Sequence[RowIndices]  # for each set, the indices of its rows among all rows
    draws: Sequence[Draws]
    interleaving: Interleaving  # the order in which the sets take turns
    batch_size: int  # rows per batch
    num_steps: int

    def batch_indices(self, step: int) -> RowIndices:
        """Return the row indices of a batch; a row may occur twice where a pass over a set ends and the next begins."""
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        first, last = (step - 1) * self.batch_size, step * self.batch_size
        before, after = self.interleaving.counts(first), self.interleaving.counts(last)
        batches = [
            iter(rows[draws.rows(low, high)])
            for rows, draws, low, high in zip(self.rows, self.draws, before, after, strict=True)
        ]
        turns = self.interleaving.draws(first, last)
        return np.array([next(batches[number]) for number in turns], np.int64)
