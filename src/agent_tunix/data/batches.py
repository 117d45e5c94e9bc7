"""The order of training: the rows in the batch of each step.

The order is a pure function of the configuration and the step, so a resumed run needs only its step number.

The rows are used in passes, each with its own shuffle. A batch never spans two passes: a remainder smaller than a batch
is left out of that pass. If a run has fewer batches than one pass, it keeps to the rows of its first pass, so that
`num_epochs` repeats the same rows. A run made longer with `num_batches` begins with the same batches.
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
    """Return the steps of a run: `num_epochs` × `num_batches`. None means all whole batches that the rows give.

    Raises:
        DataError: There are fewer rows than a batch needs.
    """
    if num_rows < batch_size:
        raise DataError(
            f"a batch requires training.batch_size={batch_size} rows, but only {num_rows} are usable; set "
            f"training.batch_size={num_rows} or less, or add rows",
            code="too_few_rows",
        )
    return num_epochs * (num_rows // batch_size if num_batches is None else num_batches)


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """The rows of every batch."""

    num_rows: int  # rows that can be drawn, at least `batch_size`
    batch_size: int  # rows per batch
    seed: int
    num_batches: int | None = None  # batches per epoch; None for all whole batches that the rows give
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
        whole_batches = self.num_rows // self.batch_size
        per_pass = whole_batches if self.num_batches is None else min(self.num_batches, whole_batches)
        num_chosen = self.num_rows if per_pass == whole_batches else per_pass * self.batch_size
        pass_number, batch = divmod(step - 1, per_pass)
        order = _order_of_pass(self.num_rows, num_chosen, self.seed, pass_number, self.shuffle)
        return order[batch * self.batch_size : (batch + 1) * self.batch_size]


@functools.lru_cache(maxsize=2)
def _order_of_pass(num_rows: int, num_chosen: int, seed: int, pass_number: int, shuffle: bool) -> RowIndices:
    """Return the [num_chosen] rows of a pass in its order; the order of the first pass decides which are chosen."""
    order = np.arange(num_rows)
    if shuffle:
        order = permute(order, seed, 0)
    order = order[:num_chosen]
    if shuffle and pass_number > 0:
        order = permute(order, seed, pass_number)
    order.flags.writeable = False
    return order


def permute(rows: RowIndices, *seeds: int) -> RowIndices:
    """Sort the rows by random keys; NumPy guarantees its raw streams across versions, but not `permutation`."""
    keys = np.random.PCG64(list(seeds)).random_raw(len(rows))
    return rows[np.argsort(keys, kind="stable")]
