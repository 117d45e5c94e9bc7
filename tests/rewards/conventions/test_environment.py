import dataclasses
import logging
from typing import Any

import pytest

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.conventions import CallSettings, EnvironmentReward
from agent_tunix.rewards.conventions.base_env import BaseEnv
from tests.raising import raises

from .shapes import samples


class Both:
    """Scores each conversation, and compares those of a group."""

    def __init__(self, bonus: float = 1.0) -> None:
        self.bonus = bonus

    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
        assert kwargs["tags"] == ["a"]
        return {"correct": float(messages[-1]["content"] == task["ground_truth"])}

    async def compute_group_reward(
        self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any
    ) -> list[dict[str, float]]:
        lengths = [len(messages[-1]["content"]) for messages in messages_list]
        return [{"shortest": self.bonus * (length == min(lengths))} for length in lengths]


def test_components_of_both_methods_are_merged_by_index_and_summed() -> None:
    first, second = EnvironmentReward(Both, "mine").score(samples("4", "four"))
    assert (first.value, first.components) == (2.0, {"correct": 1.0, "shortest": 1.0})
    assert (second.value, second.components) == (0.0, {"correct": 0.0, "shortest": 0.0})


def test_a_class_is_made_with_its_arguments() -> None:
    assert EnvironmentReward(Both, "mine", {"bonus": 3.0}).score(samples("4"))[0].value == 4.0
    assert EnvironmentReward(Both(bonus=3.0), "mine").score(samples("4"))[0].value == 4.0
    # A method with `**kwargs` takes any other argument; it is passed on, as a row's columns are.
    assert EnvironmentReward(Both, "mine", {"else": 3.0}).score(samples("4"))[0].value == 2.0


def test_components_have_weights_and_stay_unscaled() -> None:
    mine = EnvironmentReward(Both, "mine", {"weights": {"correct": 2.0, "shortest": -0.5}})
    (score,) = mine.score(samples("4"))
    assert (score.value, score.components) == (1.5, {"correct": 1.0, "shortest": 1.0})
    assert score.detail == "2 × correct 1 + -0.5 × shortest 1"
    with raises(RewardError, "invalid_mixture"):
        EnvironmentReward(Both, "mine", {"weights": {"correct": "much"}})


def test_the_task_holds_the_reference_and_every_column() -> None:
    class Environment:
        def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
            assert rollout_id == "3_0_0"
            assert task == {"prompt": "2 + 2?", "ground_truth": "4", "answer": "4", "tags": ["a"]}
            assert [message["role"] for message in messages] == ["user", "assistant"]
            task["tags"].append("b")
            messages.clear()
            return {"fine": 1.0}

    mine = EnvironmentReward(Environment, "mine")
    for _ in range(2):
        assert mine.score(samples("a"))[0].value == 1.0


class OldSingle:
    async def compute_reward(self, rollout_id: str, completion: str, ground_truth: str, **kwargs: Any) -> Any:
        return {"correct": float(completion == ground_truth)}


class OldGroup:
    async def compute_reward(self, completions: list[str], ground_truths: list[str], **kwargs: Any) -> Any:
        return [{"correct": float(c == t)} for c, t in zip(completions, ground_truths, strict=True)]


class OldGroupMethod:
    async def compute_group_reward(self, rollout_ids: Any, completions: Any, ground_truths: Any, **kwargs: Any) -> Any:
        return [{"correct": float(c == t)} for c, t in zip(completions, ground_truths, strict=True)]


@pytest.mark.parametrize("environment", [OldSingle, OldGroup, OldGroupMethod])
def test_the_older_signatures_work(environment: type) -> None:
    assert [score.value for score in EnvironmentReward(environment, "mine").score(samples("4", "5"))] == [1.0, 0.0]


class Rollouts:
    """The newer form: a finished rollout is one object, and a group method returns a mapping."""

    async def compute_reward(self, rollout: Any) -> dict[str, float] | None:
        assert rollout.messages[0] == {"role": "user", "content": "2 + 2?"}
        assert (rollout.termination_reason, rollout.rewards, rollout.split) == ("finished", None, "train")
        if rollout.messages[-1]["content"] == "fail":
            raise ValueError("no judge")
        return {"correct": float(rollout.messages[-1]["content"] == rollout.example_args["answer"])}

    async def compute_group_rewards(self, rollouts: Any) -> dict[str, dict[str, float]]:
        best = max(one.rewards["correct"] for one in rollouts)
        return {one.rollout_id: {"best": float(one.rewards["correct"] == best)} for one in reversed(rollouts)}


def test_rollouts_are_objects_with_the_rewards_of_the_other_method() -> None:
    mine = EnvironmentReward(Rollouts, "mine")
    assert mine.needs_group
    scores = mine.score(samples("5", "4", "fail"))
    assert [score.components for score in scores[:2]] == [{"correct": 0.0, "best": 0.0}, {"correct": 1.0, "best": 1.0}]
    assert scores[2].outcome is Outcome.ERROR
    assert "no judge" in scores[2].detail


def test_an_only_parameter_is_the_rollout_whatever_its_name() -> None:
    class Named:
        def compute_reward(self, attempt: Any) -> dict[str, float]:
            return {"correct": float(attempt.messages[-1]["content"] == attempt.example_args["ground_truth"])}

    class NamedGroup:
        def compute_group_rewards(self, attempts: Any, /) -> dict[str, dict[str, float]]:
            return {one.rollout_id: {"size": float(len(attempts))} for one in attempts}

    assert [score.value for score in EnvironmentReward(Named, "mine").score(samples("4", "5"))] == [1.0, 0.0]
    assert [score.value for score in EnvironmentReward(NamedGroup, "mine").score(samples("4", "5"))] == [2.0, 2.0]


@pytest.mark.parametrize("ids", [["3_0_0"], ["3_0_0", "3_0_1", "3_0_2"], ["unknown", "3_0_1"]])
def test_a_mapping_that_does_not_fit_the_rollouts_is_an_error(ids: list[str]) -> None:
    class Partial:
        def compute_group_rewards(self, rollouts: Any) -> dict[str, dict[str, float]]:
            return {one: {"ranked": 1.0} for one in ids}

    scores = EnvironmentReward(Partial, "mine").score(samples("4", "5"))
    assert scores[1].outcome is Outcome.ERROR
    assert {score.value for score in scores} <= {None, 1.0}


@pytest.mark.parametrize(
    ("reason", "told"),
    [("max_turns", "max_turns_exceeded"), ("max_episode_tokens", "context_exceeded"), ("finished", "finished")],
)
def test_a_rollout_ends_for_benchmax_s_reasons(reason: str, told: str) -> None:
    class Reason:
        def compute_reward(self, rollout: Any) -> dict[str, float]:
            return {rollout.termination_reason: 1.0}

    sample = dataclasses.replace(samples("4")[0], columns={"termination_reason": reason})
    assert EnvironmentReward(Reason, "mine").score([sample])[0].components == {told: 1.0}


@pytest.mark.parametrize("method", ["compute_reward", "compute_group_reward", "compute_group_rewards"])
def test_one_method_is_enough(method: str) -> None:
    def score(self: Any, *args: Any, **kwargs: Any) -> None:
        return None

    kind = type("Mine", (BaseEnv,), {method: score})
    assert [call.method for call in EnvironmentReward(kind, "mine").calls] == [method]


def test_a_base_class_without_a_method_of_its_own_does_not_score() -> None:
    with raises(RewardSignatureError, "invalid_reward_signature"):
        EnvironmentReward(type("Mine", (BaseEnv,), {}), "mine")


def test_an_old_completion_comes_as_messages_where_the_configuration_says_so() -> None:
    def compute_reward(completion: Any, ground_truth: Any) -> dict[str, float]:
        return {"correct": float(completion[0]["content"] == ground_truth)}

    mine = EnvironmentReward(compute_reward, "mine", settings=CallSettings(completions="messages"))
    assert mine.score(samples("4"))[0].value == 1.0


def test_a_function_of_a_rollout_is_an_environment_too() -> None:
    async def compute_reward(rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
        return {"correct": 1.0}

    assert EnvironmentReward(compute_reward, "mine").score(samples("4"))[0].value == 1.0


@pytest.mark.parametrize(
    ("returned", "outcome", "reason"),
    [
        ({"a": 1.0, "b": float("nan")}, Outcome.ERROR, "component 'b': returned nan"),
        ({"a": 1.0, "b": "high"}, Outcome.ERROR, "component 'b': returned a str"),
        ({}, Outcome.ERROR, "empty dict"),
        (1.0, Outcome.ERROR, "returned a float; expected a dict of named components"),
        ([{"a": 1.0}], Outcome.ERROR, "returned a list of length 1"),
        (None, Outcome.NOT_APPLICABLE, "None"),
        ({"a": None}, Outcome.NOT_APPLICABLE, "every component is None"),
        ({"a": 1e12, "b": 1e12}, Outcome.ERROR, "the sum of the components"),
    ],
)
def test_what_is_no_dict_of_numbers_is_an_outcome_that_names_the_component(
    returned: Any, outcome: Outcome, reason: str
) -> None:
    (score,) = EnvironmentReward(lambda rollout_id, messages, task: returned, "mine").score(samples("a"))
    assert (score.value, score.outcome) == (None, outcome)
    assert reason in score.detail


def test_a_component_that_does_not_apply_is_left_out_of_the_sum() -> None:
    (score,) = EnvironmentReward(lambda rollout_id, messages, task: {"a": 1.0, "b": None}, "mine").score(samples("a"))
    assert (score.value, score.components) == (1.0, {"a": 1.0, "b": None})


def test_one_conversation_that_fails_does_not_spoil_its_group() -> None:
    class Environment(Both):
        async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> dict[str, float]:
            return {"inverse": 1 / len(messages[-1]["content"])}

    scores = EnvironmentReward(Environment, "mine").score(samples("aa", "", "aaaa"))
    assert [score.outcome for score in scores] == [Outcome.SCORED, Outcome.ERROR, Outcome.SCORED]
    assert "ZeroDivisionError" in scores[1].detail


def test_what_a_reward_logs_and_prints_stays_with_its_completion(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Environment:
        async def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float]:
            logging.getLogger("mine").warning("scored %s", rollout_id)
            print("said", messages[-1]["content"])
            return {"a": 1.0}

    first, second = EnvironmentReward(Environment, "mine").score(samples("x", "y"))
    assert first.extras == {"log": "WARNING scored 3_0_0\nsaid x\n"}
    assert second.extras == {"log": "WARNING scored 3_0_1\nsaid y\n"}
    assert capsys.readouterr().out == "said x\nsaid y\n"  # shown where it is shown anyway
    assert len(caplog.records) == 2


def test_a_sample_without_a_conversation_gets_one() -> None:
    mine = EnvironmentReward(lambda rollout_id, messages, task: {"turns": float(len(messages))}, "mine")
    assert mine.score([Sample("a", prompt="p")])[0].value == 2.0
