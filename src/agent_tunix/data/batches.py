"""The order of training: which rows make up the batch of each step.

A pure function of the configuration and the step, so a resumed run needs no more than its step number.

The rows are gone through pass by pass, each shuffled anew; a batch never spans two passes, so a remainder smaller than
a batch sits out that pass. A run of fewer batches than one pass has keeps to the rows of its first pass, so that
`num_epochs` repeats the same rows; and a run that is lengthened by `num_batches` begins as the shorter one did.
"""

import functools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from agent_tunix.errors import DataError

RowIndices = npt.NDArray[np.int64]


class Order(Protocol):
    """Which rows make up the batch of each step: a pure function of the configuration, the rows and the step."""

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        ...

    def batch_indices(self, step: int) -> RowIndices:
        """[batch_size] row indices of one batch; `step` is from 1 to `num_steps`."""
        ...


def count_steps(num_rows: int, batch_size: int, num_batches: int | None, num_epochs: int) -> int:
    """Steps of a run: `num_epochs` times `num_batches`, or times as many whole batches as the rows give.

    Raises:
        DataError: There are fewer rows than one batch has.
    """
    if num_rows < batch_size:
        raise DataError(
            f"a batch needs training.batch_size={batch_size} rows, but only {num_rows} can be used; "
            f"set training.batch_size={num_rows} or less, or give more rows",
            code="too_few_rows",
        )
    return num_epochs * (num_rows // batch_size if num_batches is None else num_batches)


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """The rows of every batch.

    Attributes:
        num_rows: Rows that can be drawn, at least `batch_size`.
        batch_size: Rows of a batch.
        seed: The run's.
        num_batches: Batches of an epoch; None: as many whole ones as the rows give.
        num_epochs: How often the epoch is repeated.
        shuffle: False goes through the rows in their own order.
    """

    num_rows: int
    batch_size: int
    seed: int
    num_batches: int | None = None
    num_epochs: int = 1
    shuffle: bool = True

    @property
    def num_steps(self) -> int:
        """Steps of the run; raises DataError where there are fewer rows than a batch has."""
        return count_steps(self.num_rows, self.batch_size, self.num_batches, self.num_epochs)

    def batch_indices(self, step: int) -> RowIndices:
        """Row indices of one batch.

        Args:
            step: Step of the run, from 1 to `num_steps`.

        Returns:
            [batch_size] different indices below `num_rows`.
        """
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        whole_batches = self.num_rows // self.batch_size
        per_pass = whole_batches if self.num_batches is None else min(self.num_batches, whole_batches)
        num_chosen = self.num_rows if per_pass == whole_batches else per_pass * self.batch_size
        pass_number, batch = divmod(step - 1, per_pass)
        order = _order_of_pass(self.num_rows, num_chosen, self.seed, pass_number, self.shuffle)
        return order[batch * self.batch_size : (batch + 1) * self.batch_size]


@functools.lru_cache(maxsize=2)
def _order_of_pass(num_rows: int, num_chosen: int, seed: int, pass_number: int, shuffle: bool) -> RowIndices:
    """The chosen rows as a pass goes through them, [num_chosen]; the first pass is what chooses them."""
    order = np.arange(num_rows)
    if shuffle:
        order = permute(order, seed, 0)
    order = order[:num_chosen]
    if shuffle and pass_number > 0:
        order = permute(order, seed, pass_number)
    order.flags.writeable = False
    return order


def permute(rows: RowIndices, *seeds: int) -> RowIndices:
    """The rows sorted by random keys: NumPy keeps its raw streams for ever, but not its `permutation`."""
    keys = np.random.PCG64(list(seeds)).random_raw(len(rows))
    return rows[np.argsort(keys, kind="stable")]
