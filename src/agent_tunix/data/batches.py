"""The order of training: the rows in the batch of each step.

The order is a pure function of the configuration and the step, so a resumed run needs only its step number.

The rows are used in passes, each with its own shuffle. A batch may begin in one pass and end in the next, so that every
row is drawn equally often; the next pass then puts the rows that the batch already has behind its other rows. If a run
has fewer batches than one pass, it keeps to the rows of its first pass, so that `num_epochs` repeats the same rows. A
run made longer with `num_batches` begins with the same batches.
"""

import functools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from agent_tunix.errors import DataError

RowIndices = npt.NDArray[np.int64]


class Order(Protocol):
    """The rows in the batch of each step: a pure function of the configuration, the rows and the step."""

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        ...

    def batch_indices(self, step: int) -> RowIndices:
        """Return the [batch_size] row indices of one batch; `step` is from 1 to `num_steps`."""
        ...


def count_steps(num_rows: int, batch_size: int, num_batches: int | None, num_epochs: int) -> int:
    """Return the steps of a run: `num_epochs` × `num_batches`. None means the batches that all epochs together fill.

    Raises:
        DataError: There are fewer rows than a batch needs.
    """
    if num_rows < batch_size:
        raise DataError(
            f"a batch requires training.batch_size={batch_size} rows, but only {num_rows} are usable; set "
            f"training.batch_size={num_rows} or less, or add rows",
            code="no_rows",
        )
    return num_epochs * num_rows // batch_size if num_batches is None else num_epochs * num_batches


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """The rows of every batch."""

    num_rows: int  # rows that can be drawn, at least `batch_size`
    batch_size: int  # rows per batch
    seed: int
    num_batches: int | None = None  # batches per epoch; None for all rows
    num_epochs: int = 1  # number of times the epoch is repeated
    shuffle: bool = True  # if False, rows come in their own order

    @property
    def num_steps(self) -> int:
        """Steps of the run. Raises DataError if there are fewer rows than a batch needs."""
        return count_steps(self.num_rows, self.batch_size, self.num_batches, self.num_epochs)

    def batch_indices(self, step: int) -> RowIndices:
        """Return the row indices of one batch.

        Args:
            step: Step of the run, from 1 to `num_steps`.

        Returns:
            [batch_size] distinct indices below `num_rows`.
        """
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        num_chosen = self._num_chosen
        number, start = divmod((step - 1) * self.batch_size, num_chosen)
        order = _order_of_pass(self, num_chosen, number)
        batch = order[start : start + self.batch_size]
        if len(batch) < self.batch_size:
            batch = np.concatenate(
                [batch, _order_of_pass(self, num_chosen, number + 1)[: self.batch_size - len(batch)]]
            )
            batch.flags.writeable = False
        return batch

    @property
    def _num_chosen(self) -> int:
        """Rows of a pass."""
        if self.num_batches is None or self.num_batches >= self.num_rows // self.batch_size:
            return self.num_rows
        return self.num_batches * self.batch_size

    def describe_remainder(self) -> str:
        """Return one line about the rows that are drawn less often than the others; "" if there are none.

        Fewer batches than the rows fill are a choice of the user, and not described.
        """
        num_left = self.num_epochs * self.num_rows % self.batch_size if self.num_batches is None else 0
        if not num_left:
            return ""
        less = (
            "not drawn" if self.num_epochs == 1 else f"drawn {self.num_epochs - 1} instead of {self.num_epochs} times"
        )
        return (
            f"{num_left} of the {self.num_rows} training rows are {less}: they are left at the end of the run, and do "
            f"not fill a batch of training.batch_size={self.batch_size}"
        )


@functools.lru_cache(maxsize=4)
def _order_of_pass(order: BatchOrder, num_chosen: int, number: int) -> RowIndices:
    """Return the [num_chosen] rows of a pass in its order, without those of an unfinished batch at its start."""
    rows, size = _shuffled(order, num_chosen, number), order.batch_size
    first = number
    while order.shuffle and first * num_chosen % size:
        first -= 1  # the last pass that begins with a batch
    if num_chosen >= 2 * size:
        first = max(first, number - 1)  # what is put back does not reach the end of a pass
    before = _shuffled(order, num_chosen, first)
    for later in range(first + 1, number + 1):
        num_begun = later * num_chosen % size
        rows = _put_back(_shuffled(order, num_chosen, later), before[-num_begun:], size - num_begun)
        before = rows
    rows.flags.writeable = False
    return rows


def _shuffled(order: BatchOrder, num_chosen: int, number: int) -> RowIndices:
    """Return the rows of a pass in a random order; that of the first pass decides which are chosen."""
    rows = np.arange(order.num_rows)
    if order.shuffle:
        rows = permute(rows, order.seed, 0)
    rows = rows[:num_chosen]
    return permute(rows, order.seed, number) if order.shuffle and number > 0 else rows


def _put_back(rows: RowIndices, started_rows: RowIndices, num_needed: int) -> RowIndices:
    """Return the rows with the first `num_needed` that an unfinished batch does not have in front of the others."""
    is_first = np.zeros(len(rows), np.bool_)
    is_first[np.flatnonzero(~np.isin(rows, started_rows))[:num_needed]] = True
    return np.concatenate([rows[is_first], rows[~is_first]])


def permute(rows: RowIndices, *seeds: int) -> RowIndices:
    """Sort the rows by random keys; NumPy guarantees its raw streams across versions, but not `permutation`."""
    keys = np.random.PCG64(list(seeds)).random_raw(len(rows))
    return rows[np.argsort(keys, kind="stable")]
