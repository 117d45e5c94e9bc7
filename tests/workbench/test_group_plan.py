import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.workbench.group_plan import ALIVE_GROUPS, dead_shares, describe_difficulty, make_plan

NAN = math.nan


def is_dead(members: tuple[float, ...]) -> bool:
    scored = [value for value in members if not math.isnan(value)]
    return len(scored) < 2 or len(set(scored)) == 1


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, NAN]), min_size=2, max_size=7), st.integers(2, 7))
def test_the_share_of_dead_groups_is_that_of_all_groups_that_could_be_formed(totals: list[float], size: int) -> None:
    size = min(size, len(totals))
    groups = list(itertools.combinations(totals, size))
    (share,) = dead_shares(np.array([totals]), size)
    assert share == pytest.approx(sum(map(is_dead, groups)) / len(groups))


def test_the_forecast_is_right_on_average() -> None:
    rng = np.random.default_rng(0)
    chances_P = rng.beta(0.6, 0.6, size=4000)
    pilot_PK = (rng.random((4000, 16)) < chances_P[:, None]).astype(np.float64)
    plan = make_plan({1.0: pilot_PK}, [2, 4, 8])
    for forecast in plan.forecasts:
        size = forecast.num_generations
        true = float((chances_P**size + (1 - chances_P) ** size).mean())
        assert abs(forecast.dead_share - true) < 4 * forecast.standard_error


def test_the_smallest_batch_within_the_target_is_chosen() -> None:
    totals_PK = np.tile([0.0, 1.0] * 4, (10, 1))
    plan = make_plan({1.0: totals_PK}, [2, 4, 8], target=0.2)
    assert plan.within_target
    assert plan.choice.num_generations == 4
    assert plan.choice.batch_size == math.ceil(ALIVE_GROUPS / (1 - plan.choice.dead_share))
    assert plan.overrides[:2] == ("grpo.num_generations=4", "generation.temperature=1")


def test_problems_that_teach_nothing_are_told_plainly() -> None:
    plan = make_plan({1.0: np.zeros((3, 4))}, [2, 4])
    assert not plan.within_target
    assert plan.choice.batch_size is None
    assert "no group size keeps the dead groups within 25%" in "\n".join(plan.lines())


def test_problems_are_sorted_by_what_they_can_teach() -> None:
    totals_PK = np.array([[1.0, 1.0], [0.0, 0.0], [0.5, 0.5], [0.0, 1.0], [NAN, 1.0], [NAN, NAN]])
    difficulty = describe_difficulty(1.0, totals_PK)
    assert difficulty.too_easy == (0,)
    assert difficulty.too_hard == (1,)
    assert difficulty.tied == (2,)
    assert difficulty.telling == (3,)
    assert difficulty.unscored == (4, 5)
    assert difficulty.buckets == (1, 0, 0, 0, 0, 2, 0, 0, 0, 2)
    # With one total everywhere, nothing is easy or hard.
    assert describe_difficulty(1.0, np.ones((2, 3))).tied == (0, 1)


def test_a_group_larger_than_the_pilot_or_alone_is_refused_and_so_is_no_pilot() -> None:
    for size in (1, 5):
        with pytest.raises(ValueError, match=f"the 4 samples of the pilot, not {size}"):
            make_plan({1.0: np.zeros((3, 4))}, [size])
    with pytest.raises(ValueError, match="pilots must all have the same shape"):
        make_plan({}, [2])
