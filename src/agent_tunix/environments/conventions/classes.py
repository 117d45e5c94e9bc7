"""Convention `class`: one instance per episode, whose public methods are tools. TRL's environments have this form.

| method | meaning |
| --- | --- |
| `reset(**row)` | begins an episode, with `seed` if it names that; a returned text is appended to the prompt |
| `get_reward()` | the score, a number or None; optional |
| `close()` | releases the instance; optional |
| every other public method | a tool |

Each may be async.
"""

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import (
    EnvironmentAdapter,
    arguments_of_row,
    call_method,
    call_repeatable,
    make_instance,
    parameters_of,
    takes_self,
    without_self,
)
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, faults_of
from agent_tunix.environments.outcomes import Message, to_text
from agent_tunix.environments.tools import USER_FAULTS, FunctionTool, Tool
from agent_tunix.rewards.conventions.values import to_score
from agent_tunix.rewards.sample import Score
from agent_tunix.rewards.score_data import plain_mapping

_PLAIN = (bool, int, float, str, list, tuple, set, frozenset, dict, type(None))
NOT_TOOLS = ("reset", "get_reward", "close")


class ClassAdapter(EnvironmentAdapter):
    """A class whose public methods are tools."""

    convention = "class"

    def check(self) -> None:
        """Raise InvalidEnvironmentError if the class or a tool cannot be used."""
        super().check()
        self.declare()

    def declare(self) -> Sequence[Tool]:
        """Return the tools of the class."""
        return [FunctionTool(without_self(self.definition, name), name) for name in tool_methods(self.definition)]

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode."""

        def make() -> EpisodeEnvironment:
            instance = make_instance(self.definition, self.name, self.args, self.file)
            return ClassEnvironment(instance, self.name, self.traits, self.file)

        return self.seeded(make)

    @property
    def reset_parameters(self) -> dict[str, bool]:
        """Columns of the row that `reset` names."""
        if not hasattr(self.definition, "reset"):
            return {}
        parameters, _ = parameters_of(without_self(self.definition, "reset"))
        return {name: required for name, required in parameters.items() if name != "seed"}


class ClassEnvironment(EpisodeEnvironment):
    """An instance of such a class."""

    def __init__(self, instance: Any, name: str, traits: EnvironmentTraits, file: str | None) -> None:
        self.traits = traits
        self._instance = instance
        self._name = name
        self._file = file
        self._tools = [FunctionTool(getattr(instance, method), method) for method in tool_methods(type(instance))]

    @property
    def tools(self) -> Sequence[Tool]:
        """The public methods."""
        return self._tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Call `reset` with the columns that it names."""
        reset = getattr(self._instance, "reset", None)
        if reset is None:
            return None
        with faults_of(f"{self._name}.reset", self._file):
            return to_text(call_repeatable(reset, **arguments_of_row(reset, row, seed))) or None

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return what `get_reward` returns."""
        if not hasattr(self._instance, "get_reward"):
            return None
        with faults_of(f"{self._name}.get_reward", self._file):
            score = call_method(self._instance, "get_reward")
        return to_score(score, "expected a number or None from get_reward")

    def state(self) -> dict[str, Any]:
        """Return the public attributes of the instance that are plain data or arrays."""
        values: dict[str, Any] = {}
        for name, value in getattr(self._instance, "__dict__", {}).items():
            if not name.startswith("_") and (isinstance(value, _PLAIN) or hasattr(value, "tolist")):
                with contextlib.suppress(*USER_FAULTS):  # an item's `__repr__` may raise anything
                    values |= plain_mapping({name: value}, shown=False)
        return values

    def close(self) -> None:
        """Call `close`, if there is one."""
        if callable(getattr(self._instance, "close", None)):
            with faults_of(f"{self._name}.close", self._file):
                call_method(self._instance, "close")


def tool_methods(kind: type) -> list[str]:
    """Return the names of the public methods that are tools, in the order in which they are written."""
    names = dict.fromkeys(name for base in reversed(kind.__mro__[:-1]) for name in vars(base))
    return [name for name in names if not name.startswith("_") and name not in NOT_TOOLS and _is_method(kind, name)]


def _is_method(kind: type, name: str) -> bool:
    attribute = inspect.getattr_static(kind, name)
    return takes_self(attribute) or isinstance(attribute, staticmethod | classmethod)
