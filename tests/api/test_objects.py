"""Objects of Python that become names of a configuration."""

from typing import Any

import pytest

from agent_tunix.api.objects import Objects
from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config
from agent_tunix.environments.builtin.calculator import calculator as builtin_calculator
from agent_tunix.environments.registry import get_registered, register_tool
from agent_tunix.errors import InvalidEnvironmentError, RewardError
from agent_tunix.rewards.registry import get_builtin, get_reward_function, registered_apart


def brevity(response: str) -> float:
    return -len(response)


def conciseness(response: str) -> float:  # as a built-in reward is called
    return 1.0


class Door:
    """An environment with a door."""

    def open(self, key: str) -> str:
        """Open the door.

        Args:
            key: The key.
        """
        return "open" if key == "gold" else "shut"

    def score(self) -> float:
        """Return the score."""
        return 1.0


@pytest.mark.parametrize(
    ("reward", "spec"),
    [
        ("math", "math"),
        (brevity, "brevity"),
        (["math", brevity, lambda response: 1.0, lambda response: 2.0], ["math", "brevity", "reward", "reward_2"]),
        (
            {"short": brevity, "right": "math", "long": {"function": brevity, "weight": -1.0}},
            {
                "short": {"function": "short"},
                "right": {"function": "math"},
                "long": {"function": "long", "weight": -1.0},
            },
        ),
        (conciseness, "my_conciseness"),
    ],
)
def test_a_reward_is_named(reward: Any, spec: Any) -> None:
    with registered_apart():
        assert Objects(reward=reward).named_in(Config()).training.reward_function == spec


def test_a_built_in_reward_stays() -> None:
    with registered_apart():
        Objects(reward=conciseness).named_in(Config())
        assert get_reward_function("conciseness").origin == get_builtin("conciseness").origin


def test_a_reward_replaces_the_group_and_keeps_changes_of_components() -> None:
    config = compose_overrides(["reward.components.short.weight=0.5"])
    with registered_apart():
        changed = Objects(reward={"short": brevity, "right": "math"}).named_in(config)
    assert changed.reward.components == {"short": {"weight": 0.5}}


def test_an_environment_and_tools_are_named() -> None:
    config = Objects(environment=Door, tools=["calculator", Door().open]).named_in(Config())
    assert (config.environment.name, config.environment.tools) == ("Door", ["calculator", "open"])
    assert get_registered("Door").definition is Door


def test_an_agent_is_named() -> None:
    def solve(row: dict[str, Any]) -> float:
        return 1.0

    config = Objects(agent=solve).named_in(compose_overrides(["environment.agent.command=x"]))
    assert (config.environment.agent.function, config.environment.agent.command) == ("solve", None)
    assert get_registered("solve", is_agent=True).definition is solve
    with pytest.raises(InvalidEnvironmentError):
        Objects(agent=3).named_in(Config())


def test_what_is_no_reward_or_tool_is_refused() -> None:
    with pytest.raises(RewardError):
        Objects(reward=3).named_in(Config())
    with pytest.raises(InvalidEnvironmentError):
        Objects(tools=[3]).named_in(Config())
    with pytest.raises(InvalidEnvironmentError, match="list"):
        Objects(tools="calculator").named_in(Config())


def test_a_tool_keeps_the_name_by_which_the_model_calls_it() -> None:
    def calculator(expression: str) -> str:
        """Compute an expression.

        Args:
            expression: The expression.
        """
        return expression

    try:
        assert Objects(tools=[calculator]).named_in(Config()).environment.tools == ["calculator"]
    finally:
        register_tool("calculator", overwrite=True)(builtin_calculator)
