"""Protocol of one episode's environment.

An adapter in `conventions` makes an `EpisodeEnvironment` of the user's code. The engine uses it in this order:
`reset`, then `call` for each tool call and `respond` for each turn without one, then `score`, then always `close`.

A fault of a tool is a result that the model reads. Any other fault of the user's code, in `reset`, `respond`, `score`
or `close`, is an EnvironmentFailedError: the episode has no score.
"""

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.closing import Closing
from agent_tunix.environments.closest import closest
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallOutcome, CallResult, Message, Reply
from agent_tunix.environments.tools import USER_FAULTS, Tool
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Score
from agent_tunix.rewards.shims import served_imports


@dataclass(frozen=True, slots=True)
class EnvironmentTraits:
    """Traits of an environment that hold for every episode.

    Attributes:
        convention: Convention in which it is written.
        max_turns: Number of turns that the environment recommends; None if it recommends none.
        replies: True if the environment replies to turns without tool calls.
    """

    convention: str
    max_turns: int | None = None
    replies: bool = False


class EpisodeSource(Closing):
    """An environment that opens episodes, in this process or another.

    Attributes:
        concurrency: Number of threads that may use its episodes at the same time, each episode by one of them.
    """

    concurrency: int = 1

    @property
    @abc.abstractmethod
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""

    @abc.abstractmethod
    def open(self) -> "EpisodeEnvironment":
        """Return the environment of a new episode.

        Raises:
            EnvironmentFailedError: The constructor of the user's class failed.
        """


class EpisodeEnvironment(abc.ABC):
    """Environment of one episode.

    Attributes:
        traits: Traits of the environment.
    """

    traits: EnvironmentTraits

    @abc.abstractmethod
    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Begin the episode of a dataset row.

        Args:
            row: All columns of the row.
            seed: Seed of the environment's random choices, equal within a group.

        Returns:
            Text to append to the prompt, or None.

        Raises:
            EnvironmentFailedError: The user's code failed, or the row lacks a column.
        """

    @property
    @abc.abstractmethod
    def tools(self) -> Sequence[Tool]:
        """Tools of the episode; complete after `reset`."""

    def prompt(self) -> list[Message] | None:
        """Return the messages that the environment makes from the row, after `reset`; None if it makes none."""
        return None

    def call(
        self, name: str, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    ) -> CallResult:
        """Call a tool. Every fault, an unknown name included, becomes a result with a text for the model."""
        tools = {tool.name: tool for tool in self.tools}
        if name not in tools:
            names = ", ".join(tools) or "none"
            text = f"Error: there is no tool {name!r}{closest(name, tools)} Tools: {names}."
            return CallResult(text[:max_result_chars], CallOutcome.UNKNOWN_TOOL)
        return tools[name].call(arguments, max_result_chars)

    def respond(self, text: str) -> Reply:
        """Reply to a turn without tool calls. By default such a turn ends the episode."""
        return Reply(done=True)

    def score(self, messages: Sequence[Message], stop_reason: str) -> Score | None:
        """Return the score of the episode; None if the environment does not score.

        Args:
            messages: The whole transcript.
            stop_reason: Reason why the episode ended.
        """
        return None

    def state(self) -> dict[str, Any]:
        """Return the environment's state for rewards to read, as plain data; called after `score`."""
        return {}

    def close(self) -> None:  # noqa: B027  # optional
        """Release what the episode holds. It is called once, also after a failed `reset`."""


@contextlib.contextmanager
def closing_episode(environment: EpisodeEnvironment) -> Iterator[None]:
    """Close the environment of an episode at the end. After an error, a fault of `close` is ignored."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(EnvironmentFailedError):
            environment.close()
        raise
    environment.close()


@contextlib.contextmanager
def faults_of(what: str, file: str | None = None) -> Iterator[None]:
    """Turn every error of the user's code inside into an EnvironmentFailedError that says that `what` failed."""
    try:
        with served_imports():
            yield
    except EnvironmentFailedError:
        raise
    except USER_FAULTS as error:  # a user's code may raise anything
        # If a StopIteration were the cause of this RuntimeError, the context manager would raise the StopIteration.
        cause = None if isinstance(error, StopIteration) else error
        raise EnvironmentFailedError(f"{what} failed: {describe_fault(error, file)}") from cause
