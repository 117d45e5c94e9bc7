"""Calls take one completion, one group, or the whole batch."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from agent_tunix.rewards import BaseReward, Outcome, Sample, resolve_reward
from agent_tunix.rewards.conventions import TrlReward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.execution.calls import Call, divide_into_calls
from tests.tiers import slow_after

BATCH = [Sample(str(number), group_id=group) for number, group in enumerate([0, 1, 0, 1, 2])]
SIZES = "def reward(completions, **kwargs):\n    return [float(len(completions))] * len(completions)\n"
PLACES = pytest.mark.parametrize("place", slow_after(1, ["inline", "process"]))

Write = Callable[[str], str]


@pytest.mark.parametrize(
    ("reward", "calls"),
    [
        (object(), [(0,), (1,), (2,), (3,), (4,)]),
        (SimpleNamespace(needs_group=True, needs_batch=False), [(0, 2), (1, 3), (4,)]),
        (SimpleNamespace(needs_group=True, needs_batch=True), [(0, 1, 2, 3, 4)]),
        (SimpleNamespace(needs_group=False, needs_batch=True), [(0, 1, 2, 3, 4)]),
    ],
)
def test_a_reward_is_called_with_what_it_needs(reward: object, calls: Sequence[Call]) -> None:
    assert divide_into_calls(BATCH, reward) == calls
    assert divide_into_calls([], reward) == []


@PLACES
def test_a_batch_function_is_called_with_one_group_at_a_time(place: str, write: Write) -> None:
    with make_runner(resolve_reward(write(SIZES), completions="text"), place, num_workers=2) as runner:
        assert [score.value for score in runner.reward.score(BATCH)] == [2, 2, 2, 2, 1]


@pytest.mark.parametrize("kind", ["", "async "])
def test_one_that_needs_the_batch_gets_all_of_it_at_once(kind: str, write: Write) -> None:
    spec = write(f"{kind}{SIZES}\nreward.needs_batch = True\n")
    with make_runner(resolve_reward(spec, completions="text"), "inline") as runner:
        assert [score.value for score in runner.reward.score(BATCH)] == [5] * 5


@pytest.mark.parametrize(("needs_batch", "scored"), [(False, 4), (True, 0)])
def test_a_fault_costs_one_group_or_the_batch_that_was_asked_for(needs_batch: bool, scored: int, write: Write) -> None:
    code = "def reward(completions, **kwargs):\n    return [1.0 / (c != '4') for c in completions]\n"
    spec = write(f"{code}\nreward.needs_batch = {needs_batch}\n")
    with make_runner(resolve_reward(spec, completions="text"), "inline") as runner:
        outcomes = [score.outcome for score in runner.reward.score(BATCH)]
    assert outcomes == [Outcome.SCORED] * scored + [Outcome.ERROR] * (5 - scored)


class Whole(BaseReward):
    """The size of the batch."""

    needs_batch = True

    def __call__(self, prompts: list[object], completions: list[object], **kwargs: object) -> list[float]:
        return [float(len(completions))] * len(completions)


@pytest.mark.parametrize("given", [Whole, Whole(), Whole().as_fn()])
def test_a_class_declares_it_for_its_objects_and_their_functions(given: object) -> None:
    assert TrlReward(given, "whole").needs_batch
