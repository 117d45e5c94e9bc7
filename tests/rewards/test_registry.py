import importlib
import logging
import re
from typing import Any

import pytest

from agent_tunix.errors import RewardError, RewardSignatureError, UnknownRewardError
from agent_tunix.rewards import get_reward_function, list_reward_functions, register_reward_function
from agent_tunix.rewards.builtin import FAMILIES
from tests.raising import raises

RESERVED = ["total", "outcomes", "dead_groups"]


def one(response: str) -> float:
    return 1.0


def two(response: str) -> float:
    return 2.0


def test_a_registered_function_is_found_by_name() -> None:
    register_reward_function("one", one)
    assert get_reward_function("one")("anything") == 1.0
    assert "one" in list_reward_functions()


def test_the_decorator_registers_and_returns_the_function_itself() -> None:
    assert register_reward_function("one")(one) is one
    assert get_reward_function("one")("anything") == 1.0


def test_a_builtins_name_can_be_replaced_once_which_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agent_tunix.rewards"):
        register_reward_function("math", one)
    assert "the built-in reward 'math' is replaced" in caplog.text
    assert "one" in caplog.text
    assert get_reward_function("math")("wrong", answer="4") == 1.0
    with raises(RewardError, "invalid_reward"):
        register_reward_function("math", two)


def test_a_duplicate_among_the_users_names_is_an_error_naming_the_first() -> None:
    register_reward_function("mine", one)
    register_reward_function("mine", one)  # the same function may register again
    with raises(RewardError, "invalid_reward") as caught:
        register_reward_function("mine", two)
    assert re.search(r"one .*test_registry\.py:\d+.*overwrite=True", str(caught.value))
    assert get_reward_function("mine")("") == 1.0


def test_overwrite_replaces_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    register_reward_function("mine", one)
    register_reward_function("mine", two, overwrite=True)
    register_reward_function("math", two, overwrite=True)
    assert get_reward_function("mine")("") == 2.0
    assert not caplog.records


def test_a_module_imported_twice_may_register_again() -> None:
    for _ in range(2):
        scope: dict[str, Any] = {"__name__": "mine"}
        exec(compile("def reward(response):\n    return 1.0\n", "mine.py", "exec"), scope)
        register_reward_function("mine", scope["reward"])


def test_two_closures_of_one_factory_are_not_the_same() -> None:
    def make(value: float):  # type: ignore[no-untyped-def]
        return lambda response: value

    register_reward_function("mine", make(1.0))
    with raises(RewardError, "invalid_reward"):
        register_reward_function("mine", make(2.0))


@pytest.mark.parametrize(
    ("names", "code"),
    [(["", " ", "a b", "a.b", "a/b", "a:b", "1st", "naïve"], "invalid_reward"), (RESERVED, "invalid_reward")],
)
def test_a_name_that_could_not_be_written_or_logged_is_refused(names: list[str], code: str) -> None:
    for name in names:
        with raises(RewardError, code):
            register_reward_function(name, one)


def test_what_cannot_score_a_response_is_refused_at_once() -> None:
    with pytest.raises(RewardSignatureError):
        register_reward_function("mine", lambda text: 1.0)
    assert "mine" not in list_reward_functions()


def test_an_unknown_name_lists_those_there_are() -> None:
    with raises(UnknownRewardError, "unknown_reward", "check_answer, check_numbers"):
        get_reward_function("mth")


@pytest.mark.parametrize("family", sorted(set(FAMILIES.values())))
def test_the_builtins_of_a_family_are_those_that_are_listed(family: str) -> None:
    module = importlib.import_module(f"agent_tunix.rewards.builtin.{family}")
    listed = {name for name, its_family in FAMILIES.items() if its_family == family}
    own = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    assert {name.removesuffix("_reward") for name in own if name.endswith("_reward")} == listed
    for name in listed:
        assert get_reward_function(name).function is getattr(module, f"{name}_reward")
