import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.data.draws import PassDraws
from agent_tunix.data.mixing import Interleaving, MixedOrder

weights = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6).map(tuple)


@given(weights, st.integers(0, 400))
def test_each_draw_goes_to_exactly_one_set_and_none_is_taken_back(shares: tuple[float, ...], count: int) -> None:
    interleaving = Interleaving(shares)
    before, after = interleaving.counts(count), interleaving.counts(count + 1)
    assert sum(before) == count
    assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0] * (len(shares) - 1) + [1]


@given(weights, st.integers(0, 60), st.integers(0, 60))
def test_draws_agree_with_counts(shares: tuple[float, ...], first: int, more: int) -> None:
    interleaving = Interleaving(shares)
    draws = interleaving.draws(first, first + more)
    before, after = interleaving.counts(first), interleaving.counts(first + more)
    assert [draws.count(number) for number in range(len(shares))] == [b - a for a, b in zip(before, after, strict=True)]
    assert draws == [number for n in range(more) for number in interleaving.draws(first + n, first + n + 1)]


@given(weights)
def test_shares_come_as_near_to_the_weights_as_whole_rows_allow(shares: tuple[float, ...]) -> None:
    total, count = sum(shares), 1000
    for share, drawn in zip(shares, Interleaving(shares).counts(count), strict=True):
        assert abs(drawn - count * share / total) < len(shares)


@pytest.mark.parametrize(
    ("shares", "draws"),
    [
        ((1.0, 1.0), [0, 1, 0, 1, 0, 1]),
        ((3.0, 1.0), [0, 0, 1, 0, 0, 0]),
        ((0.5, 0.25, 0.25), [0, 1, 2, 0, 0, 1]),
        ((1.0,), [0] * 6),
    ],
)
def test_sets_take_turns(shares: tuple[float, ...], draws: list[int]) -> None:
    assert Interleaving(shares).draws(0, 6) == draws


@pytest.mark.parametrize("step", [0, 51])
def test_step_outside_the_run_is_an_error(step: int) -> None:
    order = MixedOrder(
        [np.arange(3)], [PassDraws(3, (0, 1))], interleaving=Interleaving((1.0,)), batch_size=8, num_steps=50
    )
    assert order.batch_indices(50).dtype == np.int64
    with pytest.raises(IndexError, match="outside 1 to 50"):
        order.batch_indices(step)
