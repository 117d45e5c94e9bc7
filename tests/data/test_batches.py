import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.data.batches import BatchOrder, count_steps
from agent_tunix.errors import DataError
from tests.raising import raises


@st.composite
def orders(draw: st.DrawFn) -> BatchOrder:
    batch_size = draw(st.integers(1, 8))
    return BatchOrder(
        num_rows=draw(st.integers(batch_size, 60)),
        batch_size=batch_size,
        seed=draw(st.integers(0, 2**63 - 1)),
        num_batches=draw(st.none() | st.integers(1, 20)),
        num_epochs=draw(st.integers(1, 3)),
        shuffle=draw(st.booleans()),
    )


def batches(order: BatchOrder) -> list[list[int]]:
    return [order.batch_indices(step).tolist() for step in range(1, order.num_steps + 1)]


@given(orders(), st.data())
def test_a_batch_depends_on_nothing_but_its_step(order: BatchOrder, data: st.DataObject) -> None:
    steps = data.draw(st.permutations(range(1, order.num_steps + 1)))
    in_order = batches(order)
    assert [order.batch_indices(step).tolist() for step in steps] == [in_order[step - 1] for step in steps]
    assert all(len(set(batch)) == order.batch_size and set(batch) <= set(range(order.num_rows)) for batch in in_order)


@given(orders())
def test_no_row_returns_before_the_data_is_gone_through(order: BatchOrder) -> None:
    whole_batches = order.num_rows // order.batch_size
    is_short = order.num_batches is not None and order.num_batches < whole_batches
    num_chosen = (order.num_batches or 0) * order.batch_size if is_short else order.num_rows
    every_batch = batches(order)
    draws = [row for batch in every_batch for row in batch]
    passes = [draws[start : start + num_chosen] for start in range(0, len(draws), num_chosen)]
    assert all(len(set(rows)) == len(rows) for rows in passes)
    if is_short:  # An epoch that is shorter than the data repeats its rows.
        assert all(set(rows) == set(passes[0]) for rows in passes)
    if order.num_batches is None:
        assert len(draws) == order.num_epochs * order.num_rows // order.batch_size * order.batch_size
        counts = np.bincount(draws, minlength=order.num_rows)
        assert counts.max() == order.num_epochs
        left = order.num_epochs * order.num_rows - len(draws)
        assert (counts < order.num_epochs).sum() == left
        assert order.describe_remainder().startswith(f"{left} of the {order.num_rows} training rows ") is bool(left)
    if order.num_batches is not None:  # A longer run begins as this one.
        longer = BatchOrder(order.num_rows, order.batch_size, order.seed, order.num_batches + 5, 1, order.shuffle)
        assert batches(longer)[: order.num_batches] == every_batch[: order.num_batches]


def test_seed_decides_the_order() -> None:
    first, again, other = (BatchOrder(num_rows=64, batch_size=16, seed=seed) for seed in (1, 1, 2))
    assert batches(first) == batches(again)
    assert batches(first) != batches(other)


def test_without_shuffling_rows_keep_their_order() -> None:
    order = BatchOrder(num_rows=7, batch_size=3, seed=0, num_batches=3, shuffle=False)
    assert batches(order) == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]


@pytest.mark.parametrize("step", [1, 3])
def test_a_batch_is_64_bit_and_cannot_be_written_to(step: int) -> None:
    batch = BatchOrder(num_rows=10, batch_size=4, seed=0, num_epochs=2).batch_indices(step)
    assert batch.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        batch[0] = 3


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "num_batches", "num_epochs", "words"),
    [
        (31, 16, None, 1, "15 of the 31 training rows are not drawn"),
        (31, 16, None, 3, "13 of the 31 training rows are drawn 2 instead of 3 times"),
        (32, 16, None, 1, ""),
        (31, 16, None, 16, ""),
        (31, 16, 1, 1, ""),  # as the user asked
        (31, 16, 2, 1, ""),
    ],
)
def test_rows_that_are_left_at_the_end_are_told(
    num_rows: int, batch_size: int, num_batches: int | None, num_epochs: int, words: str
) -> None:
    told = BatchOrder(num_rows, batch_size, 0, num_batches, num_epochs).describe_remainder()
    assert told.startswith(words)
    assert bool(told) is bool(words)


@pytest.mark.parametrize("step", [0, -1, 6])
def test_step_outside_the_run_is_an_error(step: int) -> None:
    with pytest.raises(IndexError, match="outside 1 to 5"):
        BatchOrder(num_rows=20, batch_size=4, seed=0).batch_indices(step)


@pytest.mark.parametrize(
    ("num_rows", "num_batches", "num_epochs", "steps"),
    [(20, None, 1, 5), (23, None, 2, 11), (20, 3, 1, 3), (20, 3, 2, 6), (20, 100, 1, 100), (4, None, 1, 1)],
)
def test_steps_of_a_run(num_rows: int, num_batches: int | None, num_epochs: int, steps: int) -> None:
    assert count_steps(num_rows, 4, num_batches, num_epochs) == steps


def test_fewer_rows_than_a_batch_are_refused_with_the_remedy() -> None:
    with raises(DataError, "no_rows", "training.batch_size=9"):
        count_steps(9, 16, 100, 1)
