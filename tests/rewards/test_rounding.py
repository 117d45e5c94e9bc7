"""Rewards that differ only by the rounding of a sum count as equal wherever rewards are compared."""

import numpy as np
import pytest

from agent_tunix.evaluation.judging import judge
from agent_tunix.grpo.dynamic_sampling import pass_rates
from agent_tunix.rewards import Mixture, Sample, Score, compute_advantages, register_advantage_estimator, resolve_reward
from agent_tunix.rewards.advantages import SCALINGS, is_dead
from agent_tunix.rewards.mixture.gates import OPEN, decide
from agent_tunix.rewards.rounding import are_equal, highest_within, join_equal, lowest_reaching
from agent_tunix.rewards.statistics.step import summarise
from agent_tunix.rewards.transforms import Rank
from agent_tunix.workbench.group_plan import dead_shares, describe_difficulty
from agent_tunix.workbench.replay.comparing import spearman

# Each pair is one total, summed in two ways.
ROUNDED = [(0.1 + 0.2, 0.3), (0.7 + 0.2 + 0.1, 1.0), (0.1 + 0.2 - 0.3, 0.0), (1000.1 - 1000, 0.1), (-1.1 - 2.2, -3.3)]


@pytest.mark.parametrize("pair", ROUNDED)
def test_sums_of_equal_parts_are_equal(pair: tuple[float, float]) -> None:
    assert pair[0] != pair[1]
    assert are_equal(*pair)
    assert len(set(join_equal(np.array(pair)))) == 1
    for one, other in (pair, pair[::-1]):
        assert one >= lowest_reaching(other)
        assert one <= highest_within(other)


@pytest.mark.parametrize(("first", "second"), [(0.3, 0.3 + 1e-9), (0.0, 1e-9), (1e12, 1e12 + 10), (np.nan, np.nan)])
def test_other_rewards_are_different(first: float, second: float) -> None:
    assert not are_equal(first, second)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("pair", ROUNDED)
def test_a_group_of_equal_totals_is_dead_and_has_no_advantage(pair: tuple[float, float], scaling: str) -> None:
    totals = np.array([*pair, pair[0], np.nan])
    assert is_dead(totals[None]).all()
    found = compute_advantages(totals, 4, scaling, values_CB=totals[None], weights_C=[1.0], epsilon=1e-300)
    assert found.tolist() == [0.0] * 4


def test_components_that_cancel_leave_no_advantage() -> None:
    values = np.array([[0.1, 0.3, 0.2, 0.7], [0.9, 0.7, 0.8, 0.3]])
    found = compute_advantages(values.sum(axis=0), 4, "component", values_CB=values, weights_C=[0.7, 0.7], epsilon=0.1)
    assert found.tolist() == [0.0] * 4


def test_an_estimator_of_ones_own_sees_equal_totals_as_one_number() -> None:
    seen: list[np.ndarray] = []

    def keep(totals: np.ndarray) -> np.ndarray:
        seen.append(totals)
        return np.zeros_like(totals)

    register_advantage_estimator("keep_rounded", overwrite=True)(keep)
    compute_advantages([0.1 + 0.2, 0.3, 0.5, np.nan], 4, "keep_rounded")
    assert seen[0].tolist()[0][0] == seen[0].tolist()[0][1] < 0.5


def three_parts() -> Mixture:
    """Return a mixture in which even lengths earn 0.1 + 0.2, and odd ones 0.3."""

    def even(response: str) -> bool:
        return len(response) % 2 == 0

    def odd(response: str) -> bool:
        return len(response) % 2 == 1

    weights = {"tags": (even, 0.1), "steps": (even, 0.2), "right": (odd, 0.3)}
    return resolve_reward({name: {"function": f, "weight": w} for name, (f, w) in weights.items()})


def test_the_metrics_of_a_step_show_no_spread_of_equal_totals() -> None:
    mixture = three_parts()
    samples = [
        Sample(text, group_id=n // 4, num_tokens=len(text)) for n, text in enumerate(["a", "bb", "ccc", "dd"] * 2)
    ]
    scores = mixture.score(samples)
    totals = mixture.totals(scores)
    assert len(set(totals)) == 2
    metrics = summarise(
        scores,
        totals,
        mixture.advantages(scores, 4),
        num_generations=4,
        weights=mixture.weights(1),
        samples=samples,
        ranges={"total": (0.0, 0.3)},
        detailed=True,
    )
    assert metrics["rewards/dead_groups"] == metrics["rewards/groups/all_highest"] == 1.0
    assert metrics["advantages/std"] == metrics["rewards/total/std"] == 0.0
    assert metrics["rewards/total/distinct"] == 1
    assert metrics["rewards/total/length_correlation"] is None


def test_a_threshold_is_reached_by_a_sum_that_was_rounded_down() -> None:
    almost = 0.7 + 0.2 + 0.1
    assert almost < 1.0
    assert judge([[Sample("x")]], "math", [Score(almost)], 1.0).accuracy == 1.0
    parts = {"correct": [Score(almost)]}
    assert decide({"correct": 1.0}, 0, parts, {"correct": [OPEN]}).is_open
    assert not decide({"correct": 1.0}, 0, {"correct": [Score(1 - 1e-9)]}, {"correct": [OPEN]}).is_open


def test_a_completion_passes_at_a_total_that_was_rounded_down() -> None:
    class Round:
        rows = (7,)
        judged = np.array([0.7 + 0.2 + 0.1, 1.0, 0.5, np.nan])

    assert pass_rates([Round()], 4, 1.0) == {7: 2 / 3}  # type: ignore[list-item]


def test_ranks_tie_what_differs_by_rounding() -> None:
    values = np.array([0.1 + 0.2, 0.3, 0.5])
    assert Rank()(values, np.zeros(3, np.int64)).tolist() == [0.25, 0.25, 1.0]
    assert spearman(values, np.array([1.0, 1.0, 2.0])) == pytest.approx(1.0)
    assert spearman(values[:2], np.array([1.0, 2.0])) is None


def test_a_pilot_counts_equal_totals_together() -> None:
    pilot = np.array([[0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2], [0.0, 0.3, 0.0, 0.0]])
    assert dead_shares(pilot, 4).tolist() == [1.0, 0.0]
    assert describe_difficulty(1.0, pilot).too_easy == (0,)
