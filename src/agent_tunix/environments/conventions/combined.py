"""An environment with further tools, or several tools without an environment."""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import EnvironmentAdapter
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, EpisodeSource
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallResult, Message, Reply
from agent_tunix.environments.tools import Tool
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards.sample import Score


class CombinedAdapter(EnvironmentAdapter):
    """Several environments and tools as one.

    The first one decides prompt, replies and score; all of them are reset, offer their tools and are closed.

    Args:
        adapters: The environments, at least one.

    Raises:
        InvalidEnvironmentError: Two tools have the same name.
    """

    convention = "combined"

    def __init__(self, adapters: Sequence[EnvironmentAdapter]) -> None:
        self._adapters = list(adapters)
        first = self._adapters[0]
        super().__init__(first.definition, ", ".join(adapter.name for adapter in self._adapters), first.args)

    def check(self) -> None:
        """Raise InvalidEnvironmentError if two tools have the same name."""
        names = [tool.name for tool in self.declare()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidEnvironmentError(
                f"the tools of an episode must have different names, but {', '.join(twice)} occurs twice in "
                f"{self.name}; leave one out, or rename its function",
                code="invalid_tool",
            )

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits of the first environment."""
        return self._adapters[0].traits

    def describe(self) -> str:
        """Return the descriptions of all."""
        return ", ".join(adapter.describe() for adapter in self._adapters)

    def declare(self) -> Sequence[Tool]:
        """Return the tools of all."""
        return [tool for adapter in self._adapters for tool in adapter.declare()]

    @property
    def system_prompt(self) -> str:
        """System message of the first environment."""
        return self._adapters[0].system_prompt

    @property
    def is_builtin(self) -> bool:
        """True if all of them come with this package."""
        return all(adapter.is_builtin for adapter in self._adapters)

    @property
    def waits(self) -> bool:
        """True if calls of any of them wait for other processes."""
        return any(adapter.waits for adapter in self._adapters)

    @property
    def reset_parameters(self) -> dict[str, bool]:
        """Columns of the row that any `reset` names."""
        parameters: dict[str, bool] = {}
        for adapter in self._adapters:
            for name, required in adapter.reset_parameters.items():
                parameters[name] = parameters.get(name, False) or required
        return parameters

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode."""
        return _open_all(self._adapters)

    def close(self) -> None:
        """Release what all episodes share."""
        for adapter in self._adapters:
            adapter.close()


class CombinedSource(EpisodeSource):
    """An environment, wherever it runs, with the tools of MCP servers.

    Args:
        sources: The environment, and then the servers.
        concurrency: Number of threads that may use its episodes at the same time.
    """

    def __init__(self, sources: Sequence[EpisodeSource], concurrency: int) -> None:
        self.concurrency = concurrency
        self._sources = list(sources)

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits of the environment."""
        return self._sources[0].traits

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode."""
        return _open_all(self._sources)

    def close(self) -> None:
        """Release what all episodes share."""
        for source in self._sources:
            source.close()


def _open_all(sources: Sequence[EpisodeSource]) -> EpisodeEnvironment:
    environments: list[EpisodeEnvironment] = []
    try:
        for source in sources:
            environments.append(source.open())
    except EnvironmentFailedError:
        _close_all(environments)
        raise
    return _Combined(environments, sources[0].traits)


class _Combined(EpisodeEnvironment):
    def __init__(self, environments: Sequence[EpisodeEnvironment], traits: EnvironmentTraits) -> None:
        self.traits = traits
        self._all = environments

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of all."""
        return [tool for environment in self._all for tool in environment.tools]

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Reset all; return their texts, divided by empty lines."""
        texts = [environment.reset(row, seed) for environment in self._all]
        return "\n\n".join(text for text in texts if text) or None

    def prompt(self) -> list[Message] | None:
        """Return the messages of the first environment."""
        return self._all[0].prompt()

    def call(
        self, name: str, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    ) -> CallResult:
        """Call the tool of the environment that has it."""
        for environment in self._all:
            if any(tool.name == name for tool in environment.tools):
                return environment.call(name, arguments, max_result_chars)
        return super().call(name, arguments, max_result_chars)

    def respond(self, text: str) -> Reply:
        """Return the reply of the first environment."""
        return self._all[0].respond(text)

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the score of the first environment."""
        return self._all[0].score(messages, stop_reason)

    def state(self) -> dict[str, Any]:
        """Return the state of the first environment."""
        return self._all[0].state()

    def close(self) -> None:
        """Close all, and then raise the first fault."""
        faults = _close_all(self._all)
        if faults:
            raise faults[0]


def _close_all(environments: Sequence[EpisodeEnvironment]) -> list[EnvironmentFailedError]:
    faults = []
    for environment in environments:
        try:
            environment.close()
        except EnvironmentFailedError as fault:
            faults.append(fault)
    return faults
