"""One episode on the host: a policy and an environment take turns.

The policy is any function of the messages, such as a script or a client of a model. Its turns are text; tool calls are
read from it in a model's format. Calls of one turn run one after the other.
"""

import enum
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.environments.environment import EpisodeEnvironment, closing_episode
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallOutcome, CallResult, Message, cut
from agent_tunix.environments.tool_calls import MalformedCall, ToolCall, ToolCallFormat, parse_turn
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.sample import Outcome, Score

Policy = Callable[[list[Message]], str]

DEFAULT_MAX_TURNS = 16


class StopReason(enum.StrEnum):
    """Reason why an episode ended."""

    FINISHED = "finished"
    ENVIRONMENT_DONE = "environment_done"
    MAX_TURNS = "max_turns"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of an episode.

    Attributes:
        turn: Number of the turn, from 0.
        name: Name of the tool; "" if it could not be read.
        arguments: Arguments as the model wrote them.
        result: Result of the call.
    """

    turn: int
    name: str
    arguments: dict[str, Any]
    result: CallResult


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Result of an episode.

    Attributes:
        messages: The transcript in OpenAI's shape: `tool_calls` in the policy's turns, and `tool` turns.
        stop_reason: Reason why it ended.
        score: Score of the environment; None if it does not score. An episode that failed has the outcome `error`.
        calls: Calls in order.
        num_turns: Number of the policy's turns.
        error: Description of the fault of an episode that failed; "" otherwise.
    """

    messages: list[Message]
    stop_reason: StopReason
    score: Score | None
    calls: tuple[CallRecord, ...]
    num_turns: int
    error: str = ""


def run_episode(
    environment: EpisodeEnvironment,
    policy: Policy,
    row: Mapping[str, Any] | None = None,
    *,
    prompt: Sequence[Message] | str | None = None,
    seed: int = 0,
    max_turns: int | None = None,
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
    call_format: ToolCallFormat | str = ToolCallFormat.HERMES,
) -> EpisodeResult:
    """Run one episode, and close its environment whatever happens.

    Args:
        environment: The environment of a new episode, which has not been reset.
        policy: Function from the messages so far to the text of the next turn. Its errors propagate.
        row: The dataset's row.
        prompt: Messages or the user's text, unless the environment makes them; by default the row's `prompt` or
            `question`.
        seed: Seed of the environment's own chance.
        max_turns: Limit on turns; by default the environment's recommendation, or else 16.
        max_result_chars: Limit on the length of a tool result or reply; a longer one is cut, and says so.
        call_format: Format of the policy's tool calls.
    """
    episode = _Episode(environment, max_result_chars, ToolCallFormat(call_format))
    limit = max_turns if max_turns is not None else environment.traits.max_turns or DEFAULT_MAX_TURNS
    score: Score | None = None
    error = ""
    try:
        with closing_episode(environment):
            episode.begin(row or {}, prompt, seed)
            reason = episode.take_turns(limit, policy)
            score = environment.score(episode.messages, reason)
    except EnvironmentFailedError as fault:
        reason, error = StopReason.ERROR, str(fault)
        score = Score.failed(Outcome.ERROR, error)
    return EpisodeResult(episode.messages, reason, score, tuple(episode.calls), episode.num_turns, error)


class _Episode:
    def __init__(self, environment: EpisodeEnvironment, max_result_chars: int, call_format: ToolCallFormat) -> None:
        self.messages: list[Message] = []
        self.calls: list[CallRecord] = []
        self.num_turns = 0
        self._environment = environment
        self._max_result_chars = max_result_chars
        self._format = call_format
        self._ids = itertools.count()

    def begin(self, row: Mapping[str, Any], prompt: Sequence[Message] | str | None, seed: int) -> None:
        """Reset the environment and make the first messages."""
        first = self._environment.reset(row, seed)
        made = self._environment.prompt()
        if made is None:
            given = prompt if prompt is not None else row.get("prompt", row.get("question", ""))
            made = [{"role": "user", "content": given}] if isinstance(given, str) else [dict(one) for one in given]
            made = [message for message in made if message.get("content")]
        if first and made and made[-1]["role"] == "user":
            made[-1]["content"] = _appended(made[-1]["content"], first)
        elif first:
            made.append({"role": "user", "content": first})
        self.messages += made

    def take_turns(self, limit: int, policy: Policy) -> StopReason:
        """Take turns until the episode ends; return the reason."""
        for turn in range(limit):
            if (reason := self.take_turn(turn, policy)) is not None:
                return reason
        return StopReason.MAX_TURNS

    def take_turn(self, turn: int, policy: Policy) -> StopReason | None:
        """Let the policy write a turn and the environment answer; return the reason if the episode ends."""
        text = policy([dict(message) for message in self.messages])
        self.num_turns += 1
        # An environment without tools reads the text itself, whatever it looks like.
        parsed = parse_turn(text, self._format, self._environment.tools) if self._environment.tools else None
        if parsed is None or not parsed.calls:
            self.messages.append({"role": "assistant", "content": text})
            return self._reply(text)
        self._make_calls(turn, parsed.content, parsed.calls)
        return None

    def _reply(self, text: str) -> StopReason | None:
        reply = self._environment.respond(text)
        if reply.text is not None:
            self.messages.append({"role": "user", "content": cut(reply.text, self._max_result_chars)})
        if not reply.done:
            return None
        return StopReason.ENVIRONMENT_DONE if self._environment.traits.replies else StopReason.FINISHED

    def _make_calls(self, turn: int, content: str, calls: Sequence[ToolCall | MalformedCall]) -> None:
        ids = [f"call_{next(self._ids)}" for _ in calls]
        written = [_as_message(call, name) for call, name in zip(calls, ids, strict=True) if isinstance(call, ToolCall)]
        message: Message = {"role": "assistant", "content": content}
        if written:
            message["tool_calls"] = written
        self.messages.append(message)
        for call, name in zip(calls, ids, strict=True):
            if isinstance(call, MalformedCall):
                result, arguments = CallResult(f"Error: {call.message}", CallOutcome.MALFORMED), {}
            else:
                result, arguments = (
                    self._environment.call(call.name, call.arguments, self._max_result_chars),
                    call.arguments,
                )
            self.calls.append(CallRecord(turn, call.name, arguments, result))
            self.messages.append({"role": "tool", "tool_call_id": name, "name": call.name, "content": result.text})


def _appended(content: Any, first: str) -> Any:
    """Return a prompt with the first observation after it.

    White space that divides them is kept as it is, as TRL does; without any, an empty line divides them.
    """
    if isinstance(content, list):
        return [*content, {"type": "text", "text": first}]
    is_divided = first[:1].isspace() or str(content)[-1:].isspace()
    return f"{content}{first}" if is_divided else f"{content}\n\n{first}"


def _as_message(call: ToolCall, name: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": name, "type": "function", "function": function}
