"""Requests about an episode whose environment is in another process, and plain answers to them."""

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallOutcome, CallResult, Message, Reply
from agent_tunix.environments.tools import DeclaredTool, Tool
from agent_tunix.rewards.sample import Score
from agent_tunix.rewards.score_data import pack, unpack

Read = TypeVar("Read")


def answer_request(episode: EpisodeEnvironment, method: str, *arguments: Any) -> Any:
    """Call a method of an episode's environment, and return values of built-in types.

    Args:
        episode: The environment.
        method: `reset`, `call`, `respond`, `score` or `close`.
        arguments: Arguments of the method.

    Raises:
        EnvironmentFailedError: The user's code failed.
    """
    if method == "reset":
        first = episode.reset(*arguments)
        tools = [(str(tool.name), str(tool.description), _plain(tool.parameters)) for tool in episode.tools]
        return first, _plain(episode.prompt()), tools
    if method == "call":
        result = episode.call(*arguments)
        return str(result.text), str(result.outcome.value), float(result.seconds), str(result.detail)
    if method == "respond":
        reply = episode.respond(*arguments)
        return None if reply.text is None else str(reply.text), bool(reply.done)
    if method == "score":
        score = episode.score(*arguments)
        return None if score is None else pack(score), episode.state()
    assert method == "close", method
    return episode.close()


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


class RemoteEpisode(EpisodeEnvironment):
    """An episode whose environment is in another process, where `answer_request` answers.

    Args:
        traits: Traits of the environment.
    """

    def __init__(self, traits: EnvironmentTraits) -> None:
        self.traits = traits
        self._tools: list[Tool] = []
        self._prompt: list[Message] | None = None
        self._state: dict[str, Any] = {}

    @abc.abstractmethod
    def ask(self, what: str, read: Callable[[Any], Read], method: str, *arguments: Any) -> Read:
        """Return the answer to a request.

        Args:
            what: Name of the request in errors.
            read: Converts the answer to the result; raises TypeError or ValueError if the answer is malformed.
            method: Method of `answer_request`.
            arguments: Its arguments.
        """

    @property
    def tools(self) -> Sequence[Tool]:
        """Declarations of the tools, known after `reset`."""
        return self._tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Begin the episode."""

        def read(value: Any) -> str | None:
            first, self._prompt, tools = value
            self._tools = [DeclaredTool(*tool) for tool in tools]
            return None if first is None else str(first)

        return self.ask("reset", read, "reset", dict(row), seed)

    def prompt(self) -> list[Message] | None:
        """Return the messages that the environment made of the row."""
        return self._prompt

    def call(
        self, name: str, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    ) -> CallResult:
        """Call a tool; EnvironmentFailedError if it takes too long or ends its process."""

        def read(value: Any) -> CallResult:
            text, outcome, seconds, detail = value
            return CallResult(str(text), CallOutcome(outcome), float(seconds), str(detail))

        return self.ask(name, read, "call", name, dict(arguments), max_result_chars)

    def respond(self, text: str) -> Reply:
        """Return the environment's reply to a turn without tool calls."""

        def read(value: Any) -> Reply:
            reply, done = value
            return Reply(None if reply is None else str(reply), bool(done))

        return self.ask("step", read, "respond", text)

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the environment's score."""

        def read(value: Any) -> Score | None:
            plain, self._state = value
            return None if plain is None else unpack(plain)

        return self.ask("the score", read, "score", list(messages), stop_reason)

    def state(self) -> dict[str, Any]:
        """Return the environment's state, which came with its score."""
        return self._state

    def close(self) -> None:
        """Release the episode."""
        self.ask("close", lambda _: None, "close")
