"""Environments and tools that no worker can import: of a notebook cell, a script or a closure."""

import functools
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import EnvironmentRecipe, register_environment, register_tool
from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
from agent_tunix.errors import InvalidEnvironmentError
from tests.raising import raises


def counter_class(start: int) -> type:
    class Counter:
        def __init__(self) -> None:
            self.count = start

        def reset(self) -> str:
            return f"in {os.getpid()}"

        def add(self, number: int) -> int:
            """Add a number to the count.

            Args:
                number: The number.
            """
            self.count += number
            return self.count

        def get_reward(self) -> float:
            return float(self.count)

    return Counter


def times(factor: int) -> Any:
    def multiply(number: int) -> int:
        """Multiply a number.

        Args:
            number: The number.
        """
        return number * factor

    return multiply


def opened(name: str | None, *tools: str, **limits: Any) -> EnvironmentSet:
    template = EnvironmentRecipe(None, working_directory=Path.cwd())
    return EnvironmentSet(make_recipes(name, tools, template), HostingLimits(num_workers=1, **limits))


def test_a_class_with_state_and_a_tool_of_a_closure_run_in_a_worker() -> None:
    register_environment("counter")(counter_class(5))
    register_tool("triple")(times(3))
    with opened("counter", "triple", execution="process") as environments:
        episode = environments.open({})
        assert episode.reset({}, 0) not in (None, f"in {os.getpid()}")
        assert [episode.call("add", {"number": 2}).text, episode.call("triple", {"number": 4}).text] == ["7", "12"]
        assert episode.call("add", {"number": 1}).text == "8"
        score = episode.score([], "finished")
        assert score is not None
        assert score.value == 8.0


class Started:
    """An environment whose constructor takes what the rows do not have."""

    def __init__(self, words: tuple[str, ...], limit: int = 1) -> None:
        self.words, self.limit = words, limit

    def reset(self) -> str:
        words, self.words = self.words, ()
        return " ".join(words[: self.limit])


WORDS = ("one", "two", "three")


@pytest.mark.parametrize(
    ("factory", "args", "text"),
    [
        (lambda limit=2: Started(WORDS, limit), {"limit": 3}, "one two three"),
        (functools.partial(Started, words=WORDS, limit=2), {}, "one two"),
    ],
    ids=["function", "partial"],
)
def test_a_function_that_makes_an_environment_makes_one_for_each_episode(
    factory: Any, args: dict[str, Any], text: str
) -> None:
    register_environment("started")(factory)
    recipes = make_recipes("started", (), EnvironmentRecipe(None, args, working_directory=Path.cwd()))
    with EnvironmentSet(recipes, HostingLimits("process", num_workers=1)) as environments:
        assert [environments.open({}).reset({}, 0) for _ in range(2)] == [text, text]


def test_a_function_that_fails_makes_no_environment() -> None:
    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_environment("broken")(lambda words: Started(words))


def test_an_environment_of_a_notebook_is_replaced_and_another_one_is_not() -> None:
    for start in (1, 2):
        kind = counter_class(start)
        kind.__module__ = "__main__"
        register_environment("replaced")(kind)
    with opened("replaced", execution="inline") as environments:
        assert environments.open({}).call("add", {"number": 0}).text == "2"
    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_environment("replaced")(counter_class(3))


def test_what_cannot_be_sent_runs_inline_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()

    def locked() -> str:
        """Return the number of the process."""
        with lock:
            return str(os.getpid())

    register_tool("locked")(locked)
    with opened(None, "locked") as environments:
        assert environments.open({}).call("locked", {}).text == str(os.getpid())
    assert "`lock`: TypeError: cannot pickle '_thread.lock' object" in caplog.text
    with raises(InvalidEnvironmentError, "not_sendable"):
        opened(None, "locked", execution="process")
