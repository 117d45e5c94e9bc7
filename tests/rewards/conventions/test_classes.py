import inspect
import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import BaseReward, Outcome, RewardConfig, resolve_reward
from agent_tunix.rewards.conventions import TrlReward, adapt
from tests.raising import raises

from .shapes import samples

PROMPTS = [[{"role": "user", "content": "2 + 2?"}]] * 2
COMPLETIONS = [[{"role": "assistant", "content": text}] for text in ("4", "five")]


@dataclass(frozen=True, slots=True)
class LengthConfig(RewardConfig):
    name: str = "length"
    scale: float = 1.0


class Length(BaseReward):
    """The length of each completion."""

    def __init__(self, config: LengthConfig | None = None) -> None:
        super().__init__(config or LengthConfig())

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        assert isinstance(self.config, LengthConfig)
        return [self.config.scale * len(completion[0]["content"]) for completion in completions]


def returning(value: Any) -> BaseReward:
    class Returning(BaseReward):
        def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> Any:
            return value

    return Returning()


def test_a_config_is_frozen_with_slots_and_the_base_is_abstract() -> None:
    config = RewardConfig()
    assert not hasattr(config, "__dict__")
    with pytest.raises(FrozenInstanceError):
        config.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError, match="abstract"):
        BaseReward()  # type: ignore[abstract]


def test_an_instance_has_config_name_and_doc() -> None:
    reward = Length(LengthConfig(name="mine"))
    assert (reward.config.name, reward.__name__, reward.__doc__) == ("mine", "mine", "The length of each completion.")
    assert returning([]).config == RewardConfig(name="reward")


def test_a_direct_call_gives_floats() -> None:
    assert Length()(PROMPTS, COMPLETIONS, answer=["4", "4"]) == [1.0, 4.0]
    assert {type(value) for value in returning([1, np.float64(2)])(PROMPTS, COMPLETIONS)} == {float}
    assert returning([None, 1.0])(PROMPTS, COMPLETIONS) == [None, 1.0]  # None: it does not apply


@pytest.mark.parametrize(
    ("value", "code", "fact"),
    [
        ((x for x in [1.0, 2.0]), "invalid_score", "'reward' returned a generator"),
        (np.ones(2), "invalid_score", "a ndarray of length 2"),
        ((1.0, 2.0), "invalid_score", "a tuple of length 2"),
        (1.0, "invalid_score", "a float"),
        (None, "invalid_score", "None"),
        ([1.0], "invalid_score", "1 values for 2"),
        ([1.0, 2.0, 3.0], "invalid_score", "3 values for 2"),
        ([1.0, "2"], "invalid_score", "for completion 1, counted from 0, it returned a str"),
        ([math.nan, 1.0], "invalid_score", "for completion 0, counted from 0, it returned nan"),
        ([1.0, [2.0]], "invalid_score", "for completion 1, counted from 0, it returned a list"),
    ],
)
def test_a_return_that_is_no_list_of_floats_is_an_error_of_a_direct_call(value: Any, code: str, fact: str) -> None:
    with raises(RewardError, code, fact):
        returning(value)(PROMPTS, COMPLETIONS)


def test_what_one_reward_does_to_its_arguments_the_next_does_not_see() -> None:
    class Corrupting(BaseReward):
        def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
            prompts[0][0]["content"] = "corrupted"
            completions[0].append("corrupted")
            kwargs["tags"][0].append("corrupted")
            return [0.0, 0.0]

    tags = [["a"], ["b"]]
    Corrupting()(PROMPTS, COMPLETIONS, tags=tags)
    assert "corrupted" not in repr((PROMPTS, COMPLETIONS, tags))


def test_what_trl_passes_for_logging_is_passed_on_as_it_is() -> None:
    class Logging(BaseReward):
        def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
            kwargs["log_metric"]("share", 1.0)
            return [0.0, 0.0]

    logged: dict[str, float] = {}
    Logging()(PROMPTS, COMPLETIONS, log_metric=logged.__setitem__)
    assert logged == {"share": 1.0}


def test_a_coroutine_can_be_run_inside() -> None:
    class Inside(BaseReward):
        async def _judge(self, completions: list[Any]) -> list[float]:
            return [1.0 for _ in completions]

        def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
            return self._run_batch(self._judge(completions))

    assert Inside()(PROMPTS, COMPLETIONS) == [1.0, 1.0]
    assert adapt(Inside, "mine").score(samples("a"))[0].value == 1.0


def test_as_fn_is_a_plain_function_of_the_same_name_and_signature() -> None:
    function = Length(LengthConfig(name="mine")).as_fn()
    assert isinstance(function, FunctionType)
    assert (function.__name__, function.__doc__) == ("mine", "The length of each completion.")
    assert inspect.signature(function) == inspect.signature(Length().__call__)
    assert function(PROMPTS, COMPLETIONS, answer=["4", "4"]) == [1.0, 4.0]
    mixture = resolve_reward(function)
    assert (mixture.name, mixture.score(samples("four"))[0].value) == ("mine", 4.0)


def test_as_fn_pickles() -> None:
    function = Length(LengthConfig(scale=2.0)).as_fn()
    again = pickle.loads(pickle.dumps(function))
    assert again is function  # as it is for any function
    assert again(PROMPTS, COMPLETIONS) == [2.0, 8.0]


MINE = """
from dataclasses import dataclass
from llm_finetuning.core import BaseReward, RewardConfig

@dataclass(frozen=True, slots=True)
class CountConfig(RewardConfig):
    name: str = "count"
    letter: str = "a"

class Count(BaseReward):
    '''How often a letter occurs.'''

    def __init__(self, config: CountConfig | None = None) -> None:
        super().__init__(config or CountConfig())

    def __call__(self, prompts, completions, **kwargs):
        return [float(completion[0]["content"].count(self.config.letter)) for completion in completions]
"""


def test_as_fn_of_a_users_file_unpickles_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    program = """
import pickle, sys
function = pickle.load(open(sys.argv[1], "rb"))
print(function.__name__, function([], [[{"content": "banana"}]]))
assert pickle.loads(pickle.dumps(function)) is function
"""
    mixture = resolve_reward("mine.py:Count", working_directory=tmp_path, args={"Count": {"letter": "n"}})
    reward = mixture.components[0].reward
    assert isinstance(reward, TrlReward)
    (tmp_path / "function.pickle").write_bytes(pickle.dumps(reward.target.object.as_fn()))
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "function.pickle")], capture_output=True, text=True, check=True
    )
    assert result.stdout == "count [2.0]\n"


def test_a_reward_that_cannot_be_pickled_still_has_a_function() -> None:
    reward = Length()
    reward.lock = lambda: None  # type: ignore[attr-defined]
    function = reward.as_fn()
    assert function(PROMPTS, COMPLETIONS) == [1.0, 4.0]
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(function)


@pytest.mark.parametrize("args", [{}, {"letter": "n"}, {"config": {"letter": "n"}}])
def test_a_class_of_a_file_is_made_with_its_arguments_and_gets_messages(tmp_path: Path, args: dict[str, Any]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    spec = {"mine": {"function": "mine.py:Count", "args": args}}
    mixture = resolve_reward(spec, working_directory=tmp_path, completions="text")
    mixture.check_parameters(["answer"])
    assert mixture.score(samples("banana"))[0].value == (2.0 if args else 3.0)


def test_in_a_run_a_bad_value_spoils_its_own_completion_only() -> None:
    scores = adapt(returning([1.0, math.nan]), "mine").score(samples("a", "b"))
    assert [score.outcome for score in scores] == [Outcome.SCORED, Outcome.ERROR]
