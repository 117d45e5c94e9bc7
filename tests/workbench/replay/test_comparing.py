import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import Mixture
from agent_tunix.workbench.replay import ReplayComparison, compare, replay
from agent_tunix.workbench.replay.comparing import spearman
from tests.rewards.support import by_column
from tests.workbench.replay.support import G, record


def compared(before: Mixture, after: Mixture, rows: list[dict[str, float]], num_movers: int = 10) -> ReplayComparison:
    steps = replay(after, [record(before, 1, rows)], num_generations=G)
    return compare(steps, G, num_movers)


def test_a_reversed_reward_flips_every_advantage() -> None:
    rows = [{"a": float(index)} for index in range(G)]
    comparison = compared(Mixture([by_column("a")]), Mixture([by_column("a", -1.0)]), rows)
    assert comparison.sign_flips == G
    assert comparison.rank_correlation == comparison.group_rank_correlation == -1.0
    assert not comparison.identical
    assert comparison.changed_components == {}


def test_dead_groups_are_counted_both_ways() -> None:
    rows = [{"a": float(i), "b": 0.0} for i in range(G)] + [{"a": 0.0, "b": float(i)} for i in range(G)]
    comparison = compared(Mixture([by_column("a")]), Mixture([by_column("b")]), rows)
    assert (comparison.dead_before, comparison.newly_dead, comparison.newly_alive) == (1, 1, 1)


def test_those_that_move_most_come_first() -> None:
    rows = [{"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 9.0}, {"a": 2.0, "b": 2.0}, {"a": 3.0, "b": 3.0}]
    comparison = compared(Mixture([by_column("a")]), Mixture([by_column("a"), by_column("b", 1.0)]), rows, 2)
    assert comparison.movers[0].rollout_id == "1_0_1"
    assert len(comparison.movers) == 2
    distances = [mover.distance for mover in comparison.movers]
    assert distances == sorted(distances, reverse=True)
    assert comparison.movers[0].components == {"b": (None, 9.0)}


def test_unscored_before_and_after_is_the_same() -> None:
    rows = [{"a": math.nan}, {"a": 1.0}, {"a": 2.0}, {"a": 3.0}]
    comparison = compared(Mixture([by_column("a")]), Mixture([by_column("a")]), rows)
    assert comparison.identical
    assert comparison.outcomes_before == comparison.outcomes_after
    assert comparison.outcomes_after["error"] == 1


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=12))
def test_the_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    ours = spearman(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(scipy.stats.spearmanr(first, second).statistic)
    with_unknown = (np.append(first, np.nan), np.append(second, 0.0))
    assert spearman(*with_unknown) == ours
    assert spearman(*with_unknown[::-1]) == ours
