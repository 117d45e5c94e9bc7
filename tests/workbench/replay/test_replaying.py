import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Mixture, Outcome
from agent_tunix.rewards.mixture.schedules import read_weight
from agent_tunix.workbench.replay import Unreplayable, compare, replay
from tests.raising import raises
from tests.rewards.support import by_column, component
from tests.workbench.replay.support import G, record

VALUES = st.one_of(
    st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0, 0.1, math.nan, math.inf, None, "not a number", 1e30])
)
ROWS = st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), min_size=G, max_size=3 * G).map(
    lambda rows: rows[: len(rows) // G * G]
)


def mixture_of(on_failure: str = "exclude") -> Mixture:
    return Mixture([by_column("a", 0.7), by_column("b", -0.3, requires={"a": 0.5})], on_failure=on_failure)


@settings(max_examples=60)
@given(
    steps=st.lists(ROWS, min_size=1, max_size=3),
    scaling=st.sampled_from(["group", "batch", "none", "component"]),
    on_failure=st.sampled_from(["exclude", "zero"]),
)
def test_the_unchanged_reward_gives_every_total_and_advantage_again(
    steps: list[list[dict[str, Any]]], scaling: str, on_failure: str
) -> None:
    recorded = [record(mixture_of(on_failure), number + 1, rows, scaling) for number, rows in enumerate(steps)]
    replayed = list(replay(mixture_of(on_failure), recorded, num_generations=G, scaling=scaling))
    for before, after in zip(recorded, replayed, strict=True):
        assert before.totals.tobytes() == after.totals.tobytes()
        assert before.advantages.tobytes() == after.advantages.tobytes()
        assert [score.outcome for score in before.scores] == [score.outcome for score in after.scores]
    assert compare(replayed, G).identical


def test_a_weight_that_follows_the_step_is_that_of_the_step() -> None:
    weight = read_weight("b", {"from": 0.0, "to": 1.0, "steps": [1, 3]})
    rows = [{"a": 0.0, "b": 1.0}] * G
    (step,) = replay(
        Mixture([by_column("a"), by_column("b", weight)]),
        [record(Mixture([by_column("a")]), 2, rows)],
        num_generations=G,
    )
    assert step.totals.tolist() == [0.5] * G


def test_known_scores_are_not_asked_for_again() -> None:
    asked = []

    def counts(metadata: dict[str, Any], response: str = "") -> float:
        asked.append(response)
        return float(metadata["a"])

    rows = [{"a": float(index), "b": 1.0} for index in range(G)]
    recorded = record(Mixture([component("a", counts), by_column("b")]), 1, rows)
    asked.clear()
    mixture = Mixture([component("a", counts, weight=2.0), by_column("b")])
    (step,) = replay(mixture, [recorded], num_generations=G, reuse=["a"])
    assert asked == []
    assert step.totals.tolist() == [1.0, 3.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("before", "after", "first", "again"),
    [
        (2.0, 1.0, [0.0, 1.0, 12.0, 13.0], [0.0, 11.0, 12.0, 13.0]),  # what a shut gate hid is asked when it opens
        (-1.0, 3.0, [10.0, 11.0, 12.0, 13.0], [0.0, 1.0, 2.0, 13.0]),  # a gate that shuts hides what is known
    ],
)
def test_a_gate_that_moves(before: float, after: float, first: list[float], again: list[float]) -> None:
    def gated_at(least: float) -> Mixture:
        return Mixture([by_column("a"), by_column("b", requires={"a": least})])

    recorded = record(gated_at(before), 1, [{"a": float(index), "b": 10.0} for index in range(G)])
    assert recorded.totals.tolist() == first
    (step,) = replay(gated_at(after), [recorded], num_generations=G, reuse=["a", "b"])
    assert step.totals.tolist() == again
    assert ("b" in step.scores[0].parts) is (again[0] > 0)


@pytest.mark.parametrize(
    ("size", "scaling", "whole", "code", "told"),
    [
        (G, "batch", False, "partial_batch", "rollouts.share=1"),
        (G, "component", False, "partial_batch", "step 3"),
        (G - 1, "group", True, "damaged_rollouts", "step 3 must have complete groups of 3"),
    ],
)
def test_a_step_of_which_too_little_is_stored_is_refused(
    size: int, scaling: str, whole: bool, code: str, told: str
) -> None:
    recorded = record(Mixture([by_column("a")]), 3, [{"a": 1.0}] * G, whole=whole)
    with raises(RewardError, code) as caught:
        list(replay(Mixture([by_column("a")]), [recorded], num_generations=size, scaling=scaling))
    assert isinstance(caught.value, Unreplayable) is (scaling != "median")
    assert told in str(caught.value)


def test_a_share_of_the_batch_is_enough_for_its_groups() -> None:
    recorded = record(Mixture([by_column("a")]), 3, [{"a": float(i)} for i in range(G)], whole=False)
    (step,) = replay(Mixture([by_column("a")]), [recorded], num_generations=G)
    assert np.array_equal(step.advantages, recorded.advantages)


def test_a_fault_of_the_replayed_reward_is_an_outcome() -> None:
    recorded = record(Mixture([by_column("a")]), 1, [{"a": 1.0}] * G)

    def broken(response: str) -> float:
        raise KeyError("gone")

    (step,) = replay(Mixture([component("a", broken)]), [recorded], num_generations=G)
    assert {score.outcome for score in step.scores} == {Outcome.ERROR}
    assert np.isnan(step.totals).all()
    assert not step.advantages.any()
