"""Several sets drawn by weight: which set each draw of the run takes its row from.

After n draws, set i has had the seats that Sainte-Laguë's method gives a party of weight w_i in a house of n: its j-th
draw (from 0) stands at (j + 1/2) / w_i in a row with those of all sets. So every stretch of draws, a batch too, is as
near to the weights as whole rows allow; more draws never take from a set what fewer gave it; and how many a set has had
by a step is computed, not counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_tunix.data.batches import RowIndices
from agent_tunix.data.draws import Draws


@dataclass(frozen=True)
class Interleaving:
    """The order in which sets take turns.

    Attributes:
        weights: Of each set, above 0; they need not sum to 1.
    """

    weights: tuple[float, ...]

    def counts(self, num_draws: int) -> list[int]:
        """How many of the first draws each set has had."""
        # Where whole draws end is known to within half a draw a set; from there on they are taken one by one.
        total, slack = math.fsum(self.weights), len(self.weights) // 2 + 1
        counts = [max(math.floor(num_draws * weight / total + 0.5) - slack, 0) for weight in self.weights]
        while sum(counts) < num_draws:
            counts[min(range(len(counts)), key=lambda number: self._place(number, counts[number]))] += 1
        return counts

    def draws(self, first: int, last: int) -> list[int]:
        """The set of each draw from `first` up to `last`, in their order."""
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
    """The rows of every batch, where there are several sets or a curriculum.

    Attributes:
        rows: Of each set, the numbers of its rows among all.
        draws: Of each set, what is drawn from it.
        interleaving: The order in which the sets take turns.
        batch_size: Rows of a batch.
        num_steps: Steps of the run.
    """

    rows: Sequence[RowIndices]
    draws: Sequence[Draws]
    interleaving: Interleaving
    batch_size: int
    num_steps: int

    def batch_indices(self, step: int) -> RowIndices:
        """Row indices of one batch, in which a row may stand twice where a pass over a set ends and the next begins.

        Args:
            step: Step of the run, from 1 to `num_steps`.
        """
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        first, last = (step - 1) * self.batch_size, step * self.batch_size
        before, after = self.interleaving.counts(first), self.interleaving.counts(last)
        drawn = [
            iter(rows[draws.rows(low, high)])
            for rows, draws, low, high in zip(self.rows, self.draws, before, after, strict=True)
        ]
        turns = self.interleaving.draws(first, last)
        return np.array([next(drawn[number]) for number in turns], np.int64)
