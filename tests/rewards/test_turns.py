"""Advantages of turns: against the sums of the papers, and the rules for what has no score."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent_tunix.rewards import Component, EpisodeSummary, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.measuring import RewardMetrics
from agent_tunix.rewards.mixture.schedules import Schedule
from agent_tunix.rewards.score_data import from_data, pack, to_data, unpack
from agent_tunix.rewards.statistics.credit import advantage_parts, variance_shares
from agent_tunix.rewards.turns import Credit, states_of

G = 4
TURN = Credit("turn")
Array = NDArray[np.float64]
# Scores, weight and further keys of each component by name.
Components = Mapping[str, tuple[Sequence[Score], float, dict[str, Any]]]


class Fixed:
    """A reward of given scores."""

    name = "fixed"

    def __init__(self, scores: Sequence[Score]) -> None:
        self._scores = scores

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [self._scores[sample.index or 0] for sample in samples]

    def check_parameters(self, columns: Collection[str]) -> None:
        pass

    def describe(self) -> str:
        return "fixed"


def episode(index: int, replies: Sequence[str], group: int | None = None) -> Sample:
    """Return an episode of len(replies) + 1 turns, with these replies between them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    messages += [{"role": "assistant", "content": f"turn 0 of {index}"}]
    for number, reply in enumerate(replies, 1):
        messages += [{"role": "user", "content": reply}, {"role": "assistant", "content": f"turn {number} of {index}"}]
    summary = EpisodeSummary("finished", len(replies) + 1, 1)
    return Sample(
        "", messages=tuple(messages), index=index, group_id=index // G if group is None else group, episode=summary
    )


def scored(components: Components, samples: Sequence[Sample], **settings: Any) -> tuple[Mixture, list[Score]]:
    """Return a mixture of `(scores, weight, more keys)` by name, and its scores."""
    mixture = Mixture(
        [Component(name, Fixed(scores), weight, **more) for name, (scores, weight, more) in components.items()],
        **settings,
    )
    return mixture, mixture.score(samples)


def advantages(
    components: Components, samples: Sequence[Sample], credit: Credit = TURN, scaling: str = "group", **settings: Any
) -> Array:
    mixture, scores = scored(components, samples, **settings)
    return mixture.turn_rewards(samples, scores, G, credit).advantages(scaling)


def of_turns(*values: float | None) -> Score:
    return Score.of_turns(values)


def step_rewards(seed: int, counts: Sequence[int]) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    return [rng.choice([0.0, 0.5, 1.0], count).tolist() for count in counts]


def normalised(values: Any, scaling: str) -> Array:
    """Return the advantages of values that are compared with each other, as the papers write them."""
    values = np.array(values)
    if len(values) < 2 or np.ptp(values) == 0:
        return np.zeros(len(values))
    if scaling == "leave_one_out":
        return np.array([value - np.delete(values, place).mean() for place, value in enumerate(values)])
    return np.asarray((values - values.mean()) / (values.std(ddof=1) + 1e-6 if scaling == "group" else 1.0))


def returns_of(rewards: Sequence[Sequence[float]], gamma: float) -> list[list[float]]:
    return [[sum(gamma ** (j - k) * own[j] for j in range(k, len(own))) for k in range(len(own))] for own in rewards]


COUNTS = (3, 5, 2, 5, 1, 4, 4, 2)
STATES = ("warm", "cold")


def drawn(seed: int) -> tuple[list[Sample], list[list[float]]]:
    rng = np.random.default_rng(seed)
    samples = [episode(n, rng.choice(STATES, count - 1).tolist()) for n, count in enumerate(COUNTS)]
    return samples, step_rewards(seed, COUNTS)


def assert_turns(actual: Array, expected: Sequence[Sequence[float]]) -> None:
    for row, own in zip(actual, expected, strict=True):
        np.testing.assert_allclose(row[: len(own)], own, rtol=1e-9, atol=1e-9)
        assert np.isnan(row[len(own) :]).all()


@pytest.mark.parametrize("scaling", ["group", "none", "leave_one_out"])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_turns_are_normalised_within_the_group_by_their_number(scaling: str, gamma: float) -> None:
    samples, rewards = drawn(0)
    actual = advantages(
        {"steps": ([of_turns(*own) for own in rewards], 2.0, {})}, samples, Credit("turn", gamma), scaling
    )
    returns, expected = returns_of(rewards, gamma), [[0.0] * count for count in COUNTS]
    for start in range(0, len(COUNTS), G):
        members = range(start, start + G)
        totals = normalised([2.0 * sum(rewards[n]) for n in members], scaling)
        for k in range(max(COUNTS)):
            reached = [n for n in members if COUNTS[n] > k]
            of_turn = normalised([2.0 * returns[n][k] for n in reached], scaling)
            for n, value in zip(reached, of_turn, strict=True):
                expected[n][k] = value if len(reached) > 1 else totals[n - start]
    assert_turns(actual, expected)


@pytest.mark.parametrize("scaling", ["group", "none"])
@pytest.mark.parametrize("history", [0, 1, 2, 9])
def test_a_hierarchy_weighs_groups_by_the_past_that_they_share(scaling: str, history: int) -> None:
    """HGPO: turns whose last d observations are equal, for d = 1 to H + 1, with the weight d + 1."""
    samples, rewards = drawn(2)
    credit = Credit("hgpo", 0.95, history=history)
    actual = advantages({"steps": ([of_turns(*own) for own in rewards], 1.0, {})}, samples, credit, scaling)
    returns, expected = returns_of(rewards, 0.95), [[0.0] * count for count in COUNTS]
    for start in range(0, len(COUNTS), G):
        sums: dict[tuple[int, int], float] = defaultdict(float)
        found: dict[tuple[int, int], int] = defaultdict(int)
        for depth in range(1, history + 2):
            equal = defaultdict(list)
            for n in range(start, start + G):
                seen = [message["content"] for message in samples[n].messages[::2]]
                for k in range(depth - 1, COUNTS[n]):
                    equal[tuple(seen[k + 1 - depth : k + 1])].append((n, k))
            for places in equal.values():
                values = [returns[n][k] for n, k in places]
                if len(places) < 2 or np.ptp(values) == 0:
                    continue
                for place, value in zip(places, normalised(values, scaling), strict=True):
                    sums[place] += (depth + 1) * value
                    found[place] += depth + 1
        for n, k in sums:
            expected[n][k] = sums[n, k] / found[n, k]
    assert_turns(actual, expected)


@pytest.mark.parametrize("scaling", ["group", "none", "leave_one_out"])
def test_roles_of_an_agent_are_normalised_by_themselves(scaling: str) -> None:
    """Dr. MAS: the statistics of a role are those of all of its turns in the group, and every turn has the total."""
    rng = np.random.default_rng(3)
    roles = [rng.choice(["solver", "critic"], count).tolist() for count in COUNTS]
    totals = rng.choice([0.0, 0.5, 1.0], len(COUNTS)).tolist()
    roles[0][0] = "planner"  # alone: its turn has the advantage of its episode
    samples = []
    for n, own in enumerate(roles):
        calls = [{"role": role} for role in own]
        summary = EpisodeSummary("finished", len(own), 1, agent={"calls": calls})
        samples.append(replace(episode(n, ["reply"] * (len(own) - 1)), episode=summary))
    actual = advantages({"total": ([Score(value) for value in totals], 1.0, {})}, samples, Credit("role"), scaling)
    expected = [[0.0] * count for count in COUNTS]
    for start in range(0, len(COUNTS), G):
        members = range(start, start + G)
        of_episodes = normalised([totals[n] for n in members], scaling)
        for role in ("solver", "critic", "planner"):
            places = [(n, k) for n in members for k in range(COUNTS[n]) if roles[n][k] == role]
            values = normalised([totals[n] for n, _ in places], scaling)
            for (n, k), value in zip(places, values, strict=True):
                expected[n][k] = value if len(places) > 1 else of_episodes[n - start]
    assert_turns(actual, expected)


@pytest.mark.parametrize("scaling", ["group", "none"])
@pytest.mark.parametrize("state", ["observation", "conversation"])
def test_gigpo_adds_the_advantage_among_equal_states(scaling: str, state: str) -> None:
    samples, rewards = drawn(1)
    credit = Credit("gigpo", 0.95, 0.5, state)
    actual = advantages({"steps": ([of_turns(*own) for own in rewards], 1.0, {})}, samples, credit, scaling)
    returns, expected = returns_of(rewards, 0.95), [[0.0] * count for count in COUNTS]
    for start in range(0, len(COUNTS), G):
        members, equal = range(start, start + G), defaultdict(list)
        for n, total in zip(members, normalised([sum(rewards[n]) for n in members], scaling), strict=True):
            expected[n] = [total] * COUNTS[n]
            for k in range(COUNTS[n]):
                end = 1 + 2 * k  # messages before turn k
                seen = (
                    samples[n].messages[max(0, end - 1) : end] if state == "observation" else samples[n].messages[:end]
                )
                equal[tuple(message["content"] for message in seen)].append((n, k))
        for places in equal.values():
            for (n, k), value in zip(places, normalised([returns[n][k] for n, k in places], scaling), strict=True):
                expected[n][k] += 0.5 * value
    assert_turns(actual, expected)


def test_a_score_without_turns_rewards_the_last_turn() -> None:
    samples = [episode(n, ["x"] * 2) for n in range(G)]
    final = [Score(float(value)) for value in (0, 1, 0, 1)]
    by_turn = advantages({"final": (final, 1.0, {})}, samples)
    mixture, scores = scored({"final": (final, 1.0, {})}, samples)
    np.testing.assert_allclose(by_turn, np.repeat(mixture.advantages(scores, G)[:, None], 3, axis=1))


def test_what_the_turns_leave_of_the_value_belongs_to_the_last_one() -> None:
    samples = [episode(n, ["x"]) for n in range(G)]
    whole = [Score(value, turns=(0.5,)) for value in (0.5, 1.5, 0.5, 1.5)]
    divided = [of_turns(0.5, value - 0.5) for value in (0.5, 1.5, 0.5, 1.5)]
    np.testing.assert_array_equal(
        advantages({"one": (whole, 1.0, {})}, samples), advantages({"one": (divided, 1.0, {})}, samples)
    )


def test_an_unscored_turn_is_neutral() -> None:
    samples = [episode(n, ["x"]) for n in range(G)]
    scores = [of_turns(0.0, 0.0), of_turns(1.0, 1.0), of_turns(0.5, 0.0), of_turns(None, 1.0)]
    actual = advantages({"steps": (scores, 1.0, {})}, samples, scaling="none")
    # The first turn of the last episode counts as 0.5, the mean of the others: it neither raises nor lowers it.
    returns = np.array([0.0, 2.0, 0.5, 1.5])
    np.testing.assert_allclose(actual[:, 0], returns - returns.mean())
    np.testing.assert_allclose(actual[:, 1], [-0.5, 0.5, -0.5, 0.5])


def test_if_no_turn_is_scored_the_reward_does_not_apply() -> None:
    assert Score.of_turns([None, None]).outcome is Outcome.NOT_APPLICABLE


def test_a_component_that_does_not_apply_is_neutral_at_every_turn() -> None:
    samples = [episode(n, ["x"] * 2) for n in range(G)]
    none = Score.failed(Outcome.NOT_APPLICABLE, "no reference")
    steps = [of_turns(0.0, 1.0, 0.0), none, of_turns(1.0, 1.0, 1.0), of_turns(0.5, 0.0, 1.0)]
    final = [Score(value) for value in (0.0, 0.0, 0.0, 1.0)]
    both: Components = {"steps": (steps, 1.0, {}), "final": (final, 1.0, {})}
    actual = advantages(both, samples, Credit("turn", 0.9), "none")
    alone = advantages({"final": (final, 1.0, {})}, samples, Credit("turn", 0.9), "none")
    np.testing.assert_allclose(actual[1], alone[1])


def test_an_unscored_episode_has_no_advantage_and_leaves_every_mean() -> None:
    samples = [episode(n, ["x"] * 2) for n in range(2 * G)]
    steps = [of_turns(*own) for own in step_rewards(2, [3] * 2 * G)]
    failed = [Score.failed(Outcome.TIMEOUT, "slow") if n == 1 else Score(0.0) for n in range(2 * G)]
    actual = advantages({"steps": (steps, 1.0, {}), "slow": (failed, 1.0, {})}, samples)
    assert (actual[1] == 0).all()
    kept = [0, 2, 3]
    for k in range(3):
        returns = [sum(turn or 0.0 for turn in steps[n].turns[k:]) for n in kept]
        np.testing.assert_allclose(actual[kept, k], normalised(returns, "group"), rtol=1e-9)


def test_a_shut_gate_and_a_transform_are_understood() -> None:
    samples = [episode(n, ["x"]) for n in range(G)]
    right = [Score(float(n % 2)) for n in range(G)]
    steps = [of_turns(1.0, 1.0), of_turns(0.0, 1.0), of_turns(1.0, 0.0), of_turns(1.0, 1.0)]
    gated = advantages(
        {"right": (right, 1.0, {}), "steps": (steps, 1.0, {"requires": {"right": 1.0}})}, samples, scaling="none"
    )
    opened = [Score(0.0) if n % 2 == 0 else score for n, score in enumerate(steps)]
    np.testing.assert_allclose(
        gated, advantages({"right": (right, 1.0, {}), "steps": (opened, 1.0, {})}, samples, scaling="none")
    )


@pytest.mark.parametrize("scaling", ["group", "batch", "component", "mean", "batch_centred"])
@pytest.mark.parametrize("credit", [TURN, Credit("gigpo", 0.95), Credit("hgpo", 0.95), Credit("role")])
def test_the_parts_of_the_components_sum_to_the_advantages(scaling: str, credit: Credit) -> None:
    samples, rewards = drawn(3)
    components: Components = {
        "steps": ([of_turns(*own) for own in rewards], 1.0, {}),
        "final": ([Score(float(n % 3)) for n in range(len(COUNTS))], -0.5, {}),
    }
    mixture, scores = scored(components, samples)
    turns = mixture.turn_rewards(samples, scores, G, credit)
    parts = turns.estimate(lambda totals, values, size: advantage_parts(totals, values, turns.weights, size, scaling))
    np.testing.assert_allclose(parts.sum(axis=0), turns.advantages(scaling), rtol=1e-9, atol=1e-9)
    assert math.isclose(sum(variance_shares(parts[:, turns.exists]) or ()), 1.0)


@pytest.mark.parametrize("kind", ["turn", "gigpo", "hgpo", "role"])
def test_while_all_weights_are_0_no_turn_has_an_advantage(kind: str) -> None:
    samples, rewards = drawn(4)
    late = Component("steps", Fixed([of_turns(*own) for own in rewards]), Schedule(0.0, 1.0, (5.0, 6.0)))
    mixture = Mixture([late])
    scores = mixture.score(samples)
    of_each, by_turn = mixture.credited(samples, scores, G, "group", Credit(kind))
    assert by_turn is not None
    assert not of_each.any()
    assert not np.nan_to_num(by_turn).any()
    measured = RewardMetrics(mixture, num_generations=G, credit=Credit(kind))
    assert measured.measure(1, samples, scores, mixture.totals(scores), by_turn)["rewards/dead_groups"] == 1.0


def test_equal_returns_up_to_rounding_have_no_advantage() -> None:
    samples = [episode(n, ["x"] * 2) for n in range(G)]
    steps = [of_turns(0.1, 0.2, 0.0) if n % 2 else of_turns(0.3, 0.0, 0.0) for n in range(G)]
    actual = advantages({"steps": (steps, 1.0, {})}, samples)
    assert (actual[:, 0] == 0).all()
    assert (actual[:, 2] == 0).all()
    assert actual[:, 1].any()


def test_more_values_than_turns_are_an_error() -> None:
    samples = [episode(n, ["x"]) for n in range(G)]
    scores = scored({"steps": ([of_turns(1.0, 1.0, 1.0)] + [of_turns(1.0, 0.0)] * 3, 1.0, {})}, samples)[1]
    assert [score.outcome for score in scores] == [Outcome.ERROR, *[Outcome.SCORED] * 3]


def test_ids_of_calls_are_no_part_of_a_state() -> None:
    def called(name: str) -> Sample:
        call = {"id": name, "function": {"name": "guess", "arguments": "{}"}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "higher", "tool_call_id": name, "name": "guess"},
            {"role": "assistant", "content": "done"},
        ]
        return Sample("done", messages=tuple(messages), episode=EpisodeSummary("finished", 2, 1))

    for kind in ("observation", "conversation"):
        assert states_of(called("call_0"), kind) == states_of(called("call_7"), kind)
    assert len(states_of(called("call_0"), "observation")) == 2


def test_values_by_turn_survive_the_codec() -> None:
    score = of_turns(0.1, None, 0.7)
    assert from_data(to_data(score)) == score
    assert unpack(pack(score)) == score
    assert "turns" not in to_data(Score(1.0))
    with pytest.raises(ValueError, match="turn"):
        Score(1.0, turns=(math.inf,))
