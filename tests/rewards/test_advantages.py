import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent_tunix.rewards import compute_advantages, compute_group_advantages
from agent_tunix.rewards.sample import LARGEST_VALUE

REWARDS = st.one_of(st.floats(-100, 100), st.just(np.nan), st.sampled_from([0.0, 0.1, 1.0]))


@st.composite
def batches(draw: st.DrawFn) -> tuple[NDArray[np.float64], int]:
    size, groups = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    rewards = draw(st.lists(REWARDS, min_size=size * groups, max_size=size * groups))
    return np.array(rewards, dtype=np.float64), size


def oracle(totals: NDArray[np.float64], size: int, epsilon: float) -> NDArray[np.float64]:
    """Group by group, in the words of the formula."""
    result = np.zeros_like(totals)
    for start in range(0, len(totals), size):
        group = slice(start, start + size)
        scored = totals[group][~np.isnan(totals[group])]
        if len(scored) >= 2 and len(set(scored)) > 1:
            result[group] = np.nan_to_num((totals[group] - scored.mean()) / (scored.std(ddof=1) + epsilon))
    return result


@given(batches(), st.sampled_from([1e-6, 1e-2]))
def test_advantages_equal_a_numpy_oracle(batch: tuple[NDArray[np.float64], int], epsilon: float) -> None:
    totals, size = batch
    actual = compute_group_advantages(totals, size, epsilon)
    np.testing.assert_allclose(actual, oracle(totals, size, epsilon), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "group", [[0.1, 0.1, 0.1], [1 / 3] * 3, [0.5, np.nan, np.nan], [np.nan] * 3, [0.1, 0.1, np.nan]]
)
def test_a_dead_group_gets_exactly_zero(group: list[float]) -> None:
    assert compute_group_advantages(group, 3).tolist() == [0.0, 0.0, 0.0]


def test_the_largest_scores_do_not_overflow() -> None:
    advantages = compute_group_advantages([LARGEST_VALUE, -LARGEST_VALUE, LARGEST_VALUE, 0.0], 4)
    np.testing.assert_allclose(advantages, compute_group_advantages([1.0, -1.0, 1.0, 0.0], 4, epsilon=0.0))


@pytest.mark.parametrize(
    ("totals", "size", "scaling", "told"),
    [
        ([1.0, 2.0, 3.0], 2, "group", "divide into groups"),
        ([[1.0, 2.0]], 2, "group", "divide into groups"),
        ([1.0], 0, "group", "divide into groups"),
        ([1.0, np.inf], 2, "group", "must be finite"),
        ([1.0, 2.0], 2, "grup", "not 'grup'; did you mean group"),
        ([1.0, 2.0], 2, "component", "requires the components' values"),
    ],
)
def test_what_has_no_advantages_is_refused(totals: list[float], size: int, scaling: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        compute_advantages(totals, size, scaling)


# --- the other scalings (each against an oracle: mixture/test_totals.py) ---------------------------------------------


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ("group", [-(0.5**0.5), 0.5**0.5, -(0.5**0.5), 0.5**0.5]),
        ("batch", np.array([-0.5, 0.5, -2.0, 2.0]) / np.std([0.0, 1.0, 0.0, 4.0], ddof=1)),
        ("batch_centred", np.array([-0.5, 0.5, -2.0, 2.0]) / np.std([-0.5, 0.5, -2.0, 2.0], ddof=1)),
        ("mean", [-1.0, 1.0, -1.0, 1.0]),
        ("none", [-0.5, 0.5, -2.0, 2.0]),
        ("leave_one_out", [-1.0, 1.0, -4.0, 4.0]),
    ],
)
def test_the_formula_of_a_scaling(scaling: str, expected: list[float]) -> None:
    np.testing.assert_allclose(compute_advantages([0.0, 1.0, 0.0, 4.0], 2, scaling), expected, rtol=1e-5)


def test_the_mean_of_negative_rewards_does_not_turn_the_advantage_around() -> None:
    np.testing.assert_allclose(compute_advantages([-3.0, -1.0], 2, "mean"), [-0.5, 0.5], rtol=1e-5)


def test_component_is_the_formula_of_gdpo() -> None:
    values = np.array([[0.0, 1.0, 1.0, 0.0, 0.0, 1.0], [3.0, 3.0, 9.0, 1.0, 5.0, 5.0]])
    weights = np.array([1.0, 0.5])
    groups = values.reshape(2, 2, 3)
    standardised = (groups - groups.mean(axis=2, keepdims=True)) / (groups.std(axis=2, ddof=1, keepdims=True) + 1e-6)
    sums = np.tensordot(weights, standardised, axes=1).reshape(-1)
    expected = (sums - sums.mean()) / (sums.std(ddof=1) + 1e-6)
    actual = compute_advantages(weights @ values, 3, "component", values_CB=values, weights_C=weights)
    np.testing.assert_allclose(actual, expected)
