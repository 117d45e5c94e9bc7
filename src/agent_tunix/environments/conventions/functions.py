"""Convention `tools`: plain functions. The episode has no state and no score of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import EnvironmentAdapter
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment
from agent_tunix.environments.tools import FunctionTool, Tool


class ToolAdapter(EnvironmentAdapter):
    """A function that is a tool."""

    convention = "tools"

    def check(self) -> None:
        """Raise InvalidEnvironmentError if the function cannot be described to a model."""
        super().check()
        self._tool = FunctionTool(self.definition, self.name)

    def declare(self) -> Sequence[Tool]:
        """Return the tool."""
        return [self._tool]

    def open(self) -> EpisodeEnvironment:
        """Return an environment that has this tool alone."""
        return self.seeded(lambda: ToolsEnvironment([self._tool]))


class ToolsEnvironment(EpisodeEnvironment):
    """Tools without an environment.

    Args:
        tools: The tools.
    """

    traits = EnvironmentTraits("tools")

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = list(tools)

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools."""
        return self._tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Do nothing."""
        return None
