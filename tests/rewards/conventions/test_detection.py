import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.cli.rewards import options as commands
from agent_tunix.config import schema
from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import BaseReward, get_reward_function, register_reward_function, resolve_reward
from agent_tunix.rewards.conventions import CONVENTIONS, CallSettings, adapt, detect
from tests.raising import raises

from . import shapes
from .shapes import ALL, samples


class Batch:
    def __call__(self, completions: Any, **kwargs: Any) -> Any:
        return [1.0 for _ in completions]


class PerResponse:
    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def __call__(self, response: str) -> float:
        return self.value


DETECTED: dict[str, list[Any]] = {
    "plain": [
        *(shapes.plain(float), shapes.plain_async(float), PerResponse, PerResponse()),
        *(lambda completion, answer="": 1.0, lambda response, completion: 1.0),
    ],
    "trl": [
        *(shapes.SEVERAL["trl"](float), shapes.SEVERAL["trl_async"](float), Batch, Batch()),
        *(lambda prompts, completions, **kwargs: [], lambda prompts, **kwargs: [], lambda completion_ids, **kwargs: []),
        lambda completions, ground_truths: [],
    ],
    "miles": [shapes.miles(float), lambda args, sample: 1.0, lambda args, samples, **kwargs: []],
    "environment": [
        *(shapes.environment(float), shapes.environment_sync(float), lambda rollout_id, messages, task: {}),
        *(lambda messages, task, **kwargs: {}, lambda rollout_id, completion, ground_truth: {}),
        lambda rollout_ids, completions, ground_truths: [],
    ],
}


@pytest.mark.parametrize(
    ("given", "convention"), [(given, convention) for convention, all_given in DETECTED.items() for given in all_given]
)
def test_the_signature_tells_the_convention(given: Any, convention: str) -> None:
    assert detect(given, "mine") == convention


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (lambda **kwargs: 1.0, f"rewards.convention={'|'.join(CONVENTIONS)}"),
        (lambda *args, **kwargs: 1.0, f"rewards.convention={'|'.join(CONVENTIONS)}"),
        (lambda answer, **kwargs: 1.0, f"rewards.convention={'|'.join(CONVENTIONS)}"),
        (lambda response, completions: 1.0, "rewards.convention=trl|plain"),
        (lambda args, sample, completions: 1.0, "rewards.convention=trl|miles"),
    ],
)
def test_an_ambiguous_signature_is_an_error_that_shows_how_to_say_which(given: Any, remedy: str) -> None:
    with raises(RewardSignatureError, "ambiguous_convention") as caught:
        adapt(given, "mine")
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize("convention", ["plain", "trl"])
def test_the_configuration_says_what_a_signature_does_not(tmp_path: Path, convention: str) -> None:
    (tmp_path / "mine.py").write_text(
        "def reward(**kwargs):\n"
        "    return [1.0 for _ in kwargs['completions']] if 'completions' in kwargs else float(kwargs['response'])\n"
    )
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path, convention=convention)
    assert mixture.score(samples("1.0"))[0].value == 1.0
    with raises(RewardSignatureError, "ambiguous_convention"):
        resolve_reward("mine.py:reward", working_directory=tmp_path)


def test_what_the_signature_does_say_the_configuration_does_not_change() -> None:
    mixture = resolve_reward({"a": lambda response: 1.0, "b": lambda completions: [1.0]}, convention="miles")
    assert mixture.score(samples("a"))[0].value == 2.0


class Nothing:
    pass


class Unfinished(BaseReward):
    pass


@pytest.mark.parametrize(
    ("given", "convention", "code"),
    [
        (lambda response: 1.0, "nobodys", "invalid_reward_signature"),
        (lambda text: 1.0, "auto", "invalid_reward_signature"),
        (Nothing, "auto", "invalid_reward_signature"),
        (Unfinished, "auto", "invalid_reward_signature"),
    ],
)
def test_a_reward_that_cannot_be_called_is_refused(given: Any, convention: str, code: str) -> None:
    with raises(RewardSignatureError, code):
        adapt(given, "mine", settings=CallSettings(convention))


@pytest.mark.parametrize("convention", ALL)
def test_a_reward_of_any_convention_registers_by_name(convention: str) -> None:
    register_reward_function("mine", ALL[convention](float))
    mixture = resolve_reward("mine", completions="text")
    assert [score.value for score in mixture.score(samples("1", "2"))] == [1.0, 2.0]
    assert mixture.describe()


def test_registering_can_say_the_convention() -> None:
    register_reward_function("mine", lambda **kwargs: [1.0 for _ in kwargs["prompts"]], convention="trl")
    assert get_reward_function("mine").convention == "trl"
    assert resolve_reward("mine").score(samples("a"))[0].value == 1.0


def test_a_required_parameter_of_any_convention_is_named_before_training() -> None:
    def reward(completions: Any, level: Any) -> Any:
        return [0.0]

    mixture = resolve_reward(reward)
    mixture.check_parameters(["level"])
    with raises(RewardSignatureError, "invalid_reward_signature", "`level`"):
        mixture.check_parameters(["answer"])


def test_a_constructors_required_parameter_is_named_before_training() -> None:
    class Needs:
        def __init__(self, model: str) -> None:
            self.model = model

        def __call__(self, response: str) -> float:
            return float(len(self.model))

    with raises(RewardSignatureError, "invalid_reward_args", "set rewards.args.mine.model"):
        resolve_reward({"mine": Needs}).check_parameters([])

    @dataclasses.dataclass
    class Settings:
        level: int = 1

    class NeedsMore(Needs):
        def __init__(self, config: Settings, model: str) -> None:
            super().__init__(model)

    with raises(RewardSignatureError, "invalid_reward_args"):
        resolve_reward({"mine": {"function": NeedsMore, "args": {"level": 2}}}).check_parameters([])
    mixture = resolve_reward({"mine": {"function": Needs, "args": {"model": "abc"}}})
    mixture.check_parameters([])
    assert mixture.score(samples("a"))[0].value == 3.0


class NoKeywords(BaseReward):
    def __call__(self, prompts: list[Any], completions: list[Any]) -> list[float]:  # type: ignore[override]
        return [0.0 for _ in completions]


@pytest.mark.parametrize(
    ("given", "argument", "settable"),
    [
        (PerResponse, "vlaue", "value"),
        (NoKeywords, "letters", "name"),
        (lambda completions, scale=1: [], "sacle", "scale"),
        (lambda completions, scale=1: [], "completions", "scale"),  # the function's own names cannot be set
    ],
)
def test_an_argument_that_nothing_takes_is_refused(given: Any, argument: str, settable: str) -> None:
    with raises(RewardError, "invalid_reward_args", f"it has: {settable}."):
        adapt(given, "mine", {argument: 1.0})


def in_batches(function: Any) -> Any:
    @functools.wraps(function)
    def batch(completions: Any, answer: Any, **kwargs: Any) -> Any:
        return [function(completion, truth) for completion, truth in zip(completions, answer, strict=True)]

    return batch


def passed_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def contains(response: str, answer: str) -> float:
    return float(answer in response)


def test_a_wrapper_that_asks_for_a_batch_is_given_one() -> None:
    reward = adapt(in_batches(contains), "mine", settings=CallSettings(completions="text"))
    assert reward.convention == "trl"
    assert [score.value for score in reward.score(samples("4", "5"))] == [1.0, 0.0]


@pytest.mark.parametrize("wrap", [passed_on, functools.lru_cache])
def test_a_wrapper_that_passes_all_on_is_called_as_what_it_wraps(wrap: Any) -> None:
    reward = adapt(wrap(contains), "mine")
    assert reward.convention == "plain"
    assert [score.value for score in reward.score(samples("4", "5"))] == [1.0, 0.0]


def test_the_configuration_and_the_command_line_know_every_convention() -> None:
    assert tuple(CONVENTIONS) == schema.REWARD_CONVENTIONS == commands.CONVENTIONS
