"""One episode on the host: a policy and an environment take turns.

The policy is any function of the messages, such as a script or a client of a model. Its turns are text; tool calls are
read from it in a model's format. Calls of one turn run one after the other, unless all their tools allow an overlap.
"""

import contextlib
import enum
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from agent_tunix.environments.environment import EpisodeEnvironment
from agent_tunix.environments.outcomes import (
    DEFAULT_MAX_RESULT_CHARS,
    CallOutcome,
    CallResult,
    Message,
    cut,
    to_unicode,
)
from agent_tunix.environments.tool_calls import MalformedCall, ToolCall, ToolCallFormat, parse_turn
from agent_tunix.environments.unread_calls import find_unread_call
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Outcome, Score

Policy = Callable[[list[Message]], str]

DEFAULT_MAX_TURNS = 8


class StopReason(enum.StrEnum):
    """Reason why an episode ended."""

    FINISHED = "finished"
    ENVIRONMENT_DONE = "environment_done"
    MAX_TURNS = "max_turns"
    MAX_TURN_TOKENS = "max_turn_tokens"
    MAX_EPISODE_TOKENS = "max_episode_tokens"
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
class UnreadCall:
    """Turn without a call whose text looks like one in another form.

    Attributes:
        turn: Number of the turn, from 0.
        form: Name of the form: a `ToolCallFormat`, or one that this package does not read, such as `mistral`.
    """

    turn: int
    form: str


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """One call of the policy by an agent.

    Attributes:
        prompt: Tokens of the prompt.
        sampled: Tokens of the reply.
        cached: Tokens of the prompt that were not read again.
        needed: Tokens of the prompt that had to be read: those that no earlier row holds, and the last one that was
            sampled before them, which the policy has not read. None if the call does not train.
        row: Number of the row of tokens that trains the reply; None if it was cancelled or empty, and does not train.
        parent: For the first call of a row that forked, the number of the row from which it forked.
        cause: For the first call of a row, the reason why it does not continue an earlier one (`ForkCause`); "" for
            the first row.
        first_difference: Description of the first difference from an earlier row.
        finish_reason: `stop`, `length` or `cancelled`.
        seconds: Wall time.
        reply: Start of the reply's text.
        role: Digest of the system messages of its request, which tell the roles of an agent apart; "" without any.
    """

    prompt: int
    sampled: int
    cached: int
    needed: int | None
    row: int | None
    parent: int | None
    cause: str
    first_difference: str
    finish_reason: str
    seconds: float
    reply: str
    role: str = ""


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """Outcome of an agent, and its calls of the policy.

    Attributes:
        outcome: `ok`, or the kind of its fault in one word.
        calls: Its calls of the policy, in the order in which they ended.
        main_row: Number of the row whose transcript stands for the episode; None if no call trains.
    """

    outcome: str = "ok"
    calls: tuple[PolicyCall, ...] = ()
    main_row: int | None = None


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Result of an episode.

    Attributes:
        messages: The transcript in OpenAI's shape: `tool_calls` in the policy's turns, and `tool` turns.
        stop_reason: Reason why it ended.
        score: Score of the environment; None if it does not score. An episode that failed has the outcome `error`.
        calls: Calls in order.
        num_turns: Number of the policy's turns.
        num_prompt_messages: Number of messages before the policy's first turn.
        error: Description of the fault of an episode that failed; "" otherwise.
        text: The policy's turns as they were written, and the replies to them, each on its own line.
        state: State of the environment at the end, for rewards.
        unread_calls: Turns in which no call was read, although they seem to contain one in another form.
        agent: Outcome and calls of the agent that used the policy; None if the run itself takes the turns.
    """

    messages: list[Message]
    stop_reason: StopReason
    score: Score | None
    calls: tuple[CallRecord, ...]
    num_turns: int
    num_prompt_messages: int
    error: str = ""
    text: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    unread_calls: tuple[UnreadCall, ...] = ()
    agent: AgentRecord | None = None


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
        seed: Seed of the environment's random choices.
        max_turns: Limit on turns; by default the environment's recommendation, or else 8.
        max_result_chars: Limit on the length of a tool result or reply; a longer one is cut, and says so.
        call_format: Format of the policy's tool calls.
    """
    limit = max_turns if max_turns is not None else environment.traits.max_turns or DEFAULT_MAX_TURNS
    episode = Episode(lambda: environment, call_format, max_result_chars)
    try:
        episode.begin(row or {}, prompt, seed)
        while episode.stop_reason is None:
            if episode.num_turns >= limit:
                episode.stop(StopReason.MAX_TURNS)
            else:
                episode.write(policy([dict(message) for message in episode.messages]))
    except BaseException:
        with contextlib.suppress(EnvironmentFailedError):
            environment.close()
        raise
    return episode.conclude()


class Episode:
    """An episode in progress: `begin`, then `write` for each turn until it stops, then always `conclude`.

    A fault of the environment stops the episode; no method raises it.

    Args:
        open_environment: Makes the environment of the episode.
        call_format: Format of the policy's tool calls.
        max_result_chars: Limit on the length of a tool result or reply; a longer one is cut, and says so.
        shorten: Further limit on the text of a result or reply.
        fail_on_tool_error: True to stop the episode with an error if a tool raises one, instead of telling the model.

    Attributes:
        messages: The transcript so far.
        calls: Calls so far.
        unread_calls: Turns so far that seem to contain a call that was not read.
        num_turns: Number of the policy's turns so far.
        num_prompt_messages: Number of messages before the policy's first turn.
        stop_reason: Reason why the episode has stopped; None while it goes on.
        error: Description of the environment's fault; "" without one.
    """

    def __init__(
        self,
        open_environment: Callable[[], EpisodeEnvironment],
        call_format: ToolCallFormat | str,
        max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
        *,
        shorten: Callable[[str], str] | None = None,
        fail_on_tool_error: bool = False,
    ) -> None:
        self.messages: list[Message] = []
        self.calls: list[CallRecord] = []
        self.unread_calls: list[UnreadCall] = []
        self.num_turns = 0
        self.num_prompt_messages = 0
        self.stop_reason: StopReason | None = None
        self.error = ""
        self._open = open_environment
        self._environment: EpisodeEnvironment | None = None
        self._format = ToolCallFormat(call_format)
        self._max_result_chars = max_result_chars
        self._shorten = shorten or (lambda text: text)
        self._fails_on_tool_error = fail_on_tool_error
        self._ids = itertools.count()
        self._texts: list[str] = []
        self._answered: list[int] = []  # turns that the environment answered itself

    @property
    def environment(self) -> EpisodeEnvironment:
        """The environment, after `begin`."""
        assert self._environment is not None
        return self._environment

    @property
    def max_turns(self) -> int:
        """Number of turns that the environment recommends, or else 8."""
        recommended = None if self._environment is None else self._environment.traits.max_turns
        return recommended or DEFAULT_MAX_TURNS

    def begin(self, row: Mapping[str, Any], prompt: Sequence[Message] | str | None, seed: int) -> None:
        """Open and reset the environment, and make the first messages."""
        with self._faults():
            self._environment = self._open()
            observation = self._environment.reset(row, seed)
            messages = _plain_messages(self._environment.prompt()) or []
            if all(message["role"] == "system" for message in messages):  # the environment makes no prompt of its own
                messages = _with_prompt(
                    messages, row.get("prompt", row.get("question", "")) if prompt is None else prompt
                )
            messages = [
                {name: to_unicode(value) if isinstance(value, str) else value for name, value in message.items()}
                for message in messages
            ]
            observation = observation and to_unicode(observation)
            if observation and messages and messages[-1]["role"] == "user":
                messages[-1]["content"] = _appended(messages[-1]["content"], observation)
            elif observation:
                messages.append({"role": "user", "content": observation})
            self.messages += messages
            self.num_prompt_messages = len(self.messages)

    def write(self, text: str) -> None:
        """Add a turn of the policy, and let the environment answer."""
        with self._faults():
            self.num_turns += 1
            self._texts.append(text)
            # An environment without tools reads the text itself, whatever it looks like.
            tools = self.environment.tools
            turn = parse_turn(text, self._format, tools) if tools else None
            if turn is not None:
                self._note_unread(text, turn.calls)
            if turn is None or not turn.calls:
                self.messages.append({"role": "assistant", "content": text})
                self._reply(text)
            else:
                self._make_calls(turn.content, turn.calls)

    def cut(self, text: str, reason: StopReason) -> None:
        """Add a turn that was cut at a limit, and stop; the environment does not see it."""
        self.num_turns += 1
        self._texts.append(text)
        self.messages.append({"role": "assistant", "content": text})
        self.stop(reason)

    def stop(self, reason: StopReason, error: str = "") -> None:
        """Stop the episode, unless it has stopped."""
        if self.stop_reason is None:
            self.stop_reason, self.error = reason, error

    def conclude(self) -> EpisodeResult:
        """Score the episode, close its environment and return the result."""
        assert self.stop_reason is not None
        score: Score | None = None
        state: Mapping[str, Any] = {}
        if self._environment is not None:
            with self._faults():
                if not self.error:
                    score = self._at_its_turns(self._environment.score(self.messages, self.stop_reason))
                    state = self._environment.state()
            with self._faults():
                self._environment.close()
        if self.error:
            score = Score.failed(Outcome.ERROR, self.error)
        return EpisodeResult(
            self.messages,
            self.stop_reason,
            score,
            tuple(self.calls),
            self.num_turns,
            self.num_prompt_messages or len(self.messages),
            self.error,
            "\n".join(self._texts),
            state,
            tuple(self.unread_calls),
        )

    def _at_its_turns(self, score: Score | None) -> Score | None:
        """Return the score of an environment that replies, with 0 at the turns that called tools in its place."""
        is_by_reply = score is not None and self.environment.traits.replies and len(score.turns) == len(self._answered)
        if score is None or not is_by_reply or self._answered == [*range(len(self._answered))]:
            return score
        turns: list[float | None] = [0.0] * self.num_turns
        for turn, value in zip(self._answered, score.turns, strict=True):
            turns[turn] = value
        return replace(score, turns=tuple(turns))

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except EnvironmentFailedError as fault:
            self._fail(str(fault))
        except KeyboardInterrupt:  # of the user at the terminal
            raise
        except BaseException as fault:  # a tool or an environment may raise or return anything
            self._fail(describe_fault(fault))

    def _fail(self, error: str) -> None:
        if not self.error:  # the first fault explains the others
            self.stop_reason, self.error = StopReason.ERROR, error

    def _reply(self, text: str) -> None:
        reply = self.environment.respond(text)
        self._answered.append(self.num_turns - 1)
        if reply.text is not None:
            content = self._shorten(cut(reply.text, self._max_result_chars))
            self._texts.append(content)
            self.messages.append({"role": "user", "content": content})
        if reply.done:
            replies = self.environment.traits.replies
            self.stop(StopReason.ENVIRONMENT_DONE if replies else StopReason.FINISHED)

    def _note_unread(self, text: str, calls: Sequence[ToolCall | MalformedCall]) -> None:
        """Note a turn in which no call was read, although it seems to contain one in another form."""
        if any(isinstance(call, ToolCall) for call in calls):
            return
        tools = self.environment.tools
        if form := find_unread_call(text, self._format, tools, is_malformed=bool(calls)):
            self.unread_calls.append(UnreadCall(self.num_turns - 1, form))

    def _make_calls(self, content: str, calls: Sequence[ToolCall | MalformedCall]) -> None:
        ids = [f"call_{next(self._ids)}" for _ in calls]
        message: Message = {"role": "assistant", "content": content}
        if entries := [_as_message(call, n) for call, n in zip(calls, ids, strict=True) if isinstance(call, ToolCall)]:
            message["tool_calls"] = entries
        self.messages.append(message)
        for call, name, result in zip(calls, ids, self._results(calls), strict=True):
            arguments = call.arguments if isinstance(call, ToolCall) else {}
            self.calls.append(CallRecord(self.num_turns - 1, call.name, arguments, result))
            if self._fails_on_tool_error and result.outcome is CallOutcome.TOOL_ERROR:
                raise EnvironmentFailedError(f"{call.name} failed: {result.detail or result.text}", code="tool_failed")
            text = self._shorten(result.text)
            self._texts.append(text)
            self.messages.append({"role": "tool", "tool_call_id": name, "name": call.name, "content": text})

    def _results(self, calls: Sequence[ToolCall | MalformedCall]) -> Iterator[CallResult]:
        """Yield the results in the order of the calls."""
        may_overlap = {tool.name: tool.may_overlap for tool in self.environment.tools}
        if len(calls) > 1 and all(may_overlap.get(call.name) for call in calls):
            with ThreadPoolExecutor(len(calls), "calls") as pool:
                yield from pool.map(self._result, calls)
        else:
            yield from map(self._result, calls)

    def _result(self, call: ToolCall | MalformedCall) -> CallResult:
        if isinstance(call, MalformedCall):
            return CallResult(f"Error: {call.message}", CallOutcome.MALFORMED)
        return self.environment.call(call.name, call.arguments, self._max_result_chars)


def _plain_messages(messages: Any) -> list[Message] | None:
    """Return the messages that an environment made, as plain data in valid Unicode.

    Raises:
        EnvironmentFailedError: They are not messages.
    """
    if messages is None:
        return None
    plain = json.loads(to_unicode(json.dumps(messages, ensure_ascii=False, default=str)))
    for message in plain:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise EnvironmentFailedError(f"a message of the prompt must have a role, not {message!r:.200}")
        if not isinstance(message.setdefault("content", ""), str | list | None):
            raise EnvironmentFailedError(f"a message of the prompt must have content, not {message!r:.200}")
    return list(plain)


def _with_prompt(system_messages: list[Message], prompt: Sequence[Message] | str) -> list[Message]:
    """Return the prompt after the environment's system messages, unless it has a system message itself."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(one) for one in prompt]
    messages = [message for message in messages if message.get("content")]
    has_system = any(message.get("role") == "system" for message in messages)
    return messages if has_system else [*system_messages, *messages]


def _appended(content: Any, observation: str) -> Any:
    """Return a prompt with the first observation after it.

    White space between them is kept, as in TRL. Without any, an empty line separates them.
    """
    if isinstance(content, list):
        return [*content, {"type": "text", "text": observation}]
    is_divided = observation[:1].isspace() or str(content)[-1:].isspace()
    return f"{content}{observation}" if is_divided else f"{content}\n\n{observation}"


def _as_message(call: ToolCall, name: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": name, "type": "function", "function": function}
