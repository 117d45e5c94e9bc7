import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import Mixture, Sample
from agent_tunix.rewards.advantages import SCALINGS
from agent_tunix.rewards.statistics.groups import DEATHS, duplicates
from tests.rewards.statistics.support import metrics_of, mixture_of


def causes_of(values: list[float], size: int = 2, on_failure: str = "exclude", **options: Any) -> dict[str, Any]:
    mixture = Mixture(mixture_of("a").components, on_failure=on_failure)
    metrics = metrics_of(mixture, [{"a": value} for value in values], size, detailed=True, **options)
    return {cause: metrics[f"rewards/groups/{cause}"] for cause in DEATHS if metrics[f"rewards/groups/{cause}"]}


@pytest.mark.parametrize(
    ("values", "declared", "expected"),
    [
        ([1.0, 1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 1.0], None, {"all_highest": 0.25, "all_lowest": 0.25, "tied": 0.25}),
        ([0.0, 0.0, 0.0, 0.0], (0.0, 1.0), {"all_lowest": 1.0}),
        ([1.0, 1.0, 1.0, 1.0], (0.0, 1.0), {"all_highest": 1.0}),
        ([0.0, 0.0, 0.0, 0.0], None, {"tied": 1.0}),  # the one value there is may be either end
        ([0.5, 0.5, 0.0, 0.25], (0.0, 1.0), {"tied": 0.5}),  # best of the batch, and not of the range
        ([0.1 + 0.2, 0.1 + 0.2, 0.0, 0.1], (0.0, 0.3), {"all_highest": 0.5}),
        ([math.nan, 1.0, 0.0, 1.0], (0.0, 1.0), {"unscored": 0.5}),
        ([math.nan, math.nan, 0.0, 1.0], (0.0, 1.0), {"unscored": 0.5}),
        ([math.nan] * 4, None, {"unscored": 1.0}),
        ([0.0, 1.0, 1.0, 0.0], None, {}),
    ],
)
def test_a_dead_group_has_a_cause(
    values: list[float], declared: tuple[float, float] | None, expected: dict[str, float]
) -> None:
    assert causes_of(values, ranges={"total": declared}) == expected


def test_failures_that_count_as_zero_are_still_unscored() -> None:
    assert causes_of([math.nan, math.nan, 0.0, 1.0], on_failure="zero") == {"unscored": 0.5}


@given(
    values=st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, math.nan])] * 2), min_size=9, max_size=9),
    on_failure=st.sampled_from(["exclude", "zero"]),
)
def test_causes_sum_to_the_dead_groups(values: list[tuple[float, float]], on_failure: str) -> None:
    mixture = Mixture(mixture_of("a", "b", b=-1.0).components, on_failure=on_failure)
    for scaling in SCALINGS:
        metrics = metrics_of(mixture, [{"a": a, "b": b} for a, b in values], 3, scaling, detailed=True)
        causes = sum(metrics[f"rewards/groups/{cause}"] for cause in DEATHS)
        assert causes == pytest.approx(metrics["rewards/dead_groups"])


def test_a_verifier_that_contradicts_itself_shows_as_the_spread_of_doubles() -> None:
    samples = [Sample(text, num_tokens=1) for text in ("a", "a", "b", "b", "a", "c", "c", "c")]
    totals_B = np.array([0.0, 1.0, 0.5, 0.5, 9.0, 2.0, 2.0, np.nan])
    share, deviation = duplicates(samples, totals_B, ~np.isnan(totals_B), 4)
    assert share == 7 / 8  # "a" of the second group answers another prompt
    assert deviation == pytest.approx((0.5 + 0.0 + 0.0) / 3)


def test_what_a_reward_may_tell_apart_is_no_double() -> None:
    samples = [Sample("a", num_tokens=4), Sample("a", num_tokens=5), Sample("a", num_tokens=4, ended=False)]
    assert duplicates(samples, np.array([0.0, 1.0, 2.0]), np.ones(3, bool), 3) == (0.0, None)


def test_doubles_without_scores_have_no_spread() -> None:
    samples = [Sample("a"), Sample("a")]
    assert duplicates(samples, np.array([1.0, np.nan]), np.array([True, False]), 2) == (1.0, None)
    assert duplicates([], np.array([]), np.array([], bool), 2) == (None, None)
    assert duplicates([Sample("a")] * 6, np.full(6, 0.1), np.ones(6, bool), 6) == (1.0, 0.0)
