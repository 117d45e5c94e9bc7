"""Text environments: what a turn means as an action, and what their constructors receive."""

import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from pydantic import BaseModel, Field

from agent_tunix.environments import EnvironmentAdapter, adapt_environment, resolve_environment, run_episode
from agent_tunix.environments.conventions import CombinedAdapter
from agent_tunix.environments.environment import EpisodeEnvironment

from .support import call, script, texts


class Move(enum.StrEnum):
    UP = "up"


class Level(enum.Enum):
    LOW = 0
    HIGH = 1


@dataclass
class Point:
    x: int
    y: int = 0


def model(hint: Any) -> type[BaseModel]:
    class Action(BaseModel):
        value: hint
        note: str = ""

    return Action


def takes(kind: Any) -> EnvironmentAdapter:
    """Return an environment whose `step` takes this type, and replies with the value that it received."""

    class Env:
        def reset(self) -> str:
            return "go"

        def step(self, action):  # type: ignore[no-untyped-def]
            return repr(getattr(action, "value", action)), 1.0, True, {}

    Env.step.__annotations__["action"] = kind
    return adapt_environment(Env, "env")


def reply(adapter: EnvironmentAdapter, text: str) -> str:
    return texts(run_episode(adapter.open(), script(text), max_turns=1).messages, "user")[-1]


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "3", "'3'"),
        (str, ' "x" ', "' \"x\" '"),
        (Optional[str], "null", "'null'"),  # noqa: UP045
        (int, "3\n", "3"),
        (float, "0.5", "0.5"),
        (bool, "true", "True"),
        (bool, "no", "False"),
        (Literal["a", "b"], "b\n", "'b'"),
        (Literal[1, 2], "2", "2"),
        (Move, "up", "<Move.UP: 'up'>"),
        (Move, "UP", "<Move.UP: 'up'>"),
        (Level, "1", "<Level.HIGH: 1>"),
        (Level, "LOW", "<Level.LOW: 0>"),
        (Optional[Level], "HIGH", "<Level.HIGH: 1>"),  # noqa: UP045
        (Optional[Level], "null", "None"),  # noqa: UP045
        (Annotated[Level, Field(strict=True)], "1", "<Level.HIGH: 1>"),
        (int | None, "4", "4"),
        (int | None, "null", "None"),
        (Union[int, Literal["pass"]], "pass", "'pass'"),  # noqa: UP007
        (Union[int, Literal["pass"]], "7", "7"),  # noqa: UP007
        (int | str, "7", "7"),
        (int | str, "seven", "'seven'"),
        (list[int], "[1, 2]", "[1, 2]"),
        (Annotated[int, Field(ge=0)], "7", "7"),
        (Annotated[int, Field(alias="column")], "7", "7"),
        (int, '{"value": 5, "note": "n"}', "5"),
    ],
)
def test_a_turn_is_the_one_required_field_of_an_action(hint: Any, text: str, value: str) -> None:
    assert reply(takes(model(hint)), text) == value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(Move, "up", "'up'"), (Level, "HIGH", "1"), (Literal["a"], "a", "'a'"), (int, "3", "3")],
)
def test_a_turn_is_a_simple_action(kind: Any, text: str, value: str) -> None:
    assert reply(takes(kind), text) == value


def test_a_turn_is_the_one_required_field_of_a_dataclass() -> None:
    assert reply(takes(Point), "2").endswith("Point(x=2, y=0)")


@pytest.mark.parametrize(("hint", "text"), [(int, "three"), (Move, "down"), (bool, "perhaps"), (Literal["a"], "b")])
def test_a_turn_that_fits_no_value_is_told_to_the_model(hint: Any, text: str) -> None:
    told = reply(takes(model(hint)), text)
    assert told.startswith("Error: the action must be Action: ")
    assert "dictionary" not in told


class Keyed:
    def __init__(self, prompt: str = "", gold: str = "none", limit: int = 3, **kwargs: Any) -> None:
        self.seen = f"{gold} {limit} {sorted(kwargs)}"

    def reset(self) -> str:
        return self.seen

    def step(self, action: str) -> tuple[Any, ...]:
        return "", 1.0, True, {}


TUNIX = """
from tunix.rl.agentic.environments.base_environment import BaseTaskEnv, EnvStepResult


class Lake(BaseTaskEnv):
    def __init__(self, PARAMETERS, max_steps=5, **kwargs):
        super().__init__(task=dict(entry), max_steps=max_steps)

    def _initial_observation(self):
        return self.task

    def _step_impl(self, action):
        return EnvStepResult(observation="", reward=1.0, done=True, info={})
"""


def first(adapter: EnvironmentAdapter, row: dict[str, Any]) -> str | None:
    episode: EpisodeEnvironment = adapter.open()
    return episode.reset(row, 0)


def test_a_constructor_gets_the_columns_that_its_optional_parameters_name() -> None:
    adapter = adapt_environment(Keyed, "keyed", {"limit": 5})
    assert adapter.reset_parameters == {"prompt": False, "gold": False}
    assert first(adapter, {"gold": "g", "limit": 9, "other": 1}) == "g 5 []"
    assert first(adapter, {}) == "none 5 []"


class TunixLike:
    """Base class that looks as if it came from Tunix."""

    __module__ = "tunix.rl.agentic.environments.base_environment"


class Lake(TunixLike):
    def __init__(self, entry: dict[str, Any] | None = None, max_steps: int = 5) -> None:
        self.seen = f"{entry} {max_steps}"

    reset = Keyed.reset
    step = Keyed.step


def test_the_first_parameter_of_an_environment_of_tunix_is_the_row() -> None:
    adapter = adapt_environment(Lake, "lake")
    assert adapter.reset_parameters == {"max_steps": False}
    assert first(adapter, {"entry": "e", "max_steps": 2}) == "{'entry': 'e', 'max_steps': 2} 2"


@pytest.mark.slow  # it imports Tunix
@pytest.mark.parametrize("parameters", ["entry", "entry=None, group_id=None, pair_index=None"])
def test_an_environment_of_tunix_gets_the_row_as_its_first_argument(parameters: str, tmp_path: Path) -> None:
    (tmp_path / "lake.py").write_text(TUNIX.replace("PARAMETERS", parameters))
    adapter = resolve_environment("lake.py:Lake", working_directory=tmp_path)
    assert "entry" not in adapter.reset_parameters
    for row in ({"answer": "4"}, {"answer": "4", "entry": "e"}):
        assert first(adapter, row) == json.dumps(row)


def test_each_turn_has_the_reward_of_its_step() -> None:
    class Paid:
        def reset(self) -> str:
            return "go"

        def step(self, action: int) -> tuple[str, float | None, bool, dict[str, Any]]:
            return "", None if action == 0 else action / 2, action == 3, {}

    result = run_episode(adapt_environment(Paid, "paid").open(), script("1", "not a number", "0", "3"), prompt="go")
    assert result.score is not None
    assert result.score.value == 2.0
    assert result.score.turns == (0.5, 0.0, 0.0, 1.5)


def test_a_turn_with_a_tool_call_takes_no_reward_of_a_step() -> None:
    class Paid:
        def reset(self) -> str:
            return "go"

        def step(self, action: int) -> tuple[str, float, bool, dict[str, Any]]:
            return "", action / 2, action == 3, {}

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    both = CombinedAdapter([adapt_environment(Paid, "paid"), adapt_environment(double, "double")])
    turns = ("1", call("double", number=1), call("double", number=4), "3")
    result = run_episode(both.open(), script(*turns), prompt="go")
    assert result.num_turns == 4
    assert result.score is not None
    assert (result.score.value, result.score.turns) == (2.0, (0.5, 0.0, 0.0, 1.5))
