"""95 % intervals, and two models on the same problems."""

import itertools
import math

import numpy as np
import pytest

from agent_tunix.evaluation.intervals import compare, mcnemar_p_value, mean_interval, share_interval
from agent_tunix.workbench.checks import wilson_interval


def shares(rows: list[list[int]]) -> np.ndarray:
    return np.array(rows, bool)


@pytest.mark.parametrize(
    ("hits", "judged", "expected"),
    [
        ([[1], [0], [1], [1]], [[1], [1], [1], [1]], wilson_interval(3, 4)),
        ([[1], [0], [1]], [[1], [1], [0]], wilson_interval(1, 2)),
        ([[0], [0]], [[0], [0]], None),
        # Problems all alike still leave a doubt.
        ([[0, 0]] * 30, [[1, 1]] * 30, wilson_interval(0, 30)),
        ([[1, 1]] * 30, [[1, 1]] * 30, wilson_interval(30, 30)),
    ],
)
def test_of_one_sample_a_problem_the_interval_is_wilsons(
    hits: list[list[int]], judged: list[list[int]], expected: tuple[float, float] | None
) -> None:
    assert share_interval(shares(hits), shares(judged)) == expected


def test_samples_of_a_problem_that_agree_count_as_one() -> None:
    alone = shares([[1, 1]] * 20 + [[0, 0]] * 20)
    mixed = shares([[1, 0]] * 40)
    wide, narrow = (share_interval(hits, np.ones_like(hits)) for hits in (alone, mixed))
    assert wide is not None
    assert narrow is not None
    assert narrow == (0.5, 0.5)
    assert 0.25 < wide[1] - wide[0] < 0.35  # the binomial interval of 40 problems, not of 80 samples, is 0.3 wide


def test_a_bootstrap_interval_is_near_the_normal_one_of_many_problems() -> None:
    values = np.random.default_rng(3).uniform(size=2000)
    low, high = mean_interval(values)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=2e-3)
    assert mean_interval(values) == (low, high)


def test_the_bootstrap_covers_the_truth_about_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        ease = rng.beta(2, 2, size=60)
        hits = rng.uniform(size=(60, 4)) < ease[:, None]
        interval = share_interval(hits, np.ones_like(hits))
        assert interval is not None
        covered += interval[0] <= 0.5 <= interval[1]
    assert 180 <= covered <= 199


def test_mcnemar_is_the_binomial_test_of_an_even_coin() -> None:
    for first, second in itertools.product(range(7), repeat=2):
        total = first + second
        weights = [math.comb(total, i) / 2**total for i in range(total + 1)]
        as_extreme = sum(weight for i, weight in enumerate(weights) if abs(i - total / 2) >= abs(first - total / 2))
        assert mcnemar_p_value(first, second) == pytest.approx(min(1.0, as_extreme))


def test_of_thousands_of_problems_mcnemar_does_not_overflow() -> None:
    assert mcnemar_p_value(2000, 2000) == 1.0
    assert mcnemar_p_value(1500, 2500) < 1e-50


def test_two_models_are_compared_problem_by_problem() -> None:
    found = compare(shares([[1], [1], [1], [0]]), shares([[1], [0], [0], [1]]))
    assert found.difference == 0.25
    assert (found.only_first, found.only_second, found.num_problems) == (2, 1, 4)
    assert found.p_value == 1.0
    assert found.interval[0] <= 0.25 <= found.interval[1]


def test_a_model_does_not_differ_from_itself() -> None:
    right = shares([[1], [0], [1]])
    found = compare(right, right)
    assert (found.difference, found.interval, found.p_value) == (0.0, (0.0, 0.0), 1.0)


def test_pairing_tells_apart_what_two_intervals_cannot() -> None:
    second = np.random.default_rng(1).uniform(size=(300, 1)) < 0.5
    first = second.copy()
    first[np.flatnonzero(~second)[:12]] = True
    found = compare(first, second)
    assert found.interval[0] > 0
    assert found.p_value is not None
    assert found.p_value < 0.001
    ones, others = (share_interval(right, np.ones_like(right)) for right in (first, second))
    assert ones is not None
    assert others is not None
    assert ones[0] < others[1]


def test_several_samples_a_problem_have_an_interval_and_no_mcnemar() -> None:
    found = compare(shares([[1, 1], [1, 0]]), shares([[0, 1], [0, 0]]))
    assert found.difference == 0.5
    assert found.p_value is None
