"""Episodes of agents, as rewards and rollouts see them: the transcript of the main row, the score, or the fault."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_tunix.environments import AgentRecord, CallRecord, CallResult, EpisodeResult, Message, StopReason
from agent_tunix.environments.agents import AgentOutcome, failed_score
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.forks import Decode
from agent_tunix.serving.rows import main_row, make_rows

_NO_CALLS = (
    "the agent made no call of the policy that ended, so nothing of it can train; it must use OPENAI_BASE_URL and "
    "OPENAI_API_KEY, or the client that it is given"
)

_LIMITS = (
    "the context is generation.max_prompt_length + environment.max_episode_tokens; environment.agent.max_calls and "
    "environment.agent.max_tokens limit a rollout"
)


def make_result(
    calls: Sequence[RecordedCall],
    outcome: AgentOutcome,
    refused: str,
    met_limit: bool,
    prompt: Sequence[Mapping[str, Any]],
    decode: Decode,
) -> EpisodeResult:
    """Return the episode of a rollout.

    An agent that failed, or made no call, leaves its episode without a score.

    Args:
        calls: Its calls, in the order in which they ended.
        outcome: What became of the agent.
        refused: Reason why a call was refused; "" if none was.
        met_limit: True if a call was refused for a limit.
        prompt: Messages that stand for the episode if there are no calls.
        decode: Function from ids to text.
    """
    rows = make_rows(calls)
    main = main_row(rows)
    last = None if main is None else calls[rows[main].calls[-1]]
    if last is None:
        messages, first = [dict(message) for message in prompt], len(prompt)
        if outcome.kind == "ok":
            outcome = replace(outcome, kind="no_calls", score=None, message=_explained(_NO_CALLS, refused, met_limit))
    elif last.reply is None:  # a completion of plain text or ids
        messages, first = _plain_messages(last, decode), 1
    else:
        messages = [*map(dict, last.messages), dict(last.reply)]
        first = len(calls[rows[main or 0].calls[0]].messages) or 1
    if outcome.kind not in ("ok", "no_calls") and refused:
        kind = "limit_exceeded" if outcome.kind == "error" and met_limit else outcome.kind
        outcome = replace(outcome, kind=kind, score=None, message=_explained(outcome.message, refused, met_limit))
    has_failed = outcome.kind != "ok"
    was_cut = last is not None and last.finish_reason == "length"
    stop_reason = StopReason.MAX_TURN_TOKENS if was_cut else StopReason.FINISHED
    return EpisodeResult(
        messages,
        StopReason.ERROR if has_failed else stop_reason,
        failed_score(outcome) if has_failed else outcome.score,
        tuple(_tool_calls(messages[first:])),
        sum(message["role"] == "assistant" for message in messages[first:]),
        first,
        error=outcome.message if has_failed else "",
        text="\n".join(str(message.get("content") or "") for message in messages[first:]),
        agent=AgentRecord(outcome=outcome.kind),
    )


def _plain_messages(call: RecordedCall, decode: Decode) -> list[Message]:
    texts = {"user": decode(call.prompt), "assistant": decode(call.tokens)}
    return [{"role": role, "content": text} for role, text in texts.items()]


def _explained(message: str, refused: str, met_limit: bool) -> str:
    """Return the description of a fault, with the refusal before it and the keys of the limits."""
    advice = f" ({_LIMITS})" if met_limit else ""
    return f"{message}; a call was refused before: {refused}{advice}" if refused else message


def _tool_calls(messages: Sequence[Message]) -> Iterator[CallRecord]:
    """Yield the calls of tools in a transcript. How a tool of an agent fared is not known beyond its result."""
    turn = -1
    waiting: Iterator[Mapping[str, Any]] = iter(())
    for message in messages:
        if message["role"] == "assistant":
            turn, waiting = turn + 1, iter(message.get("tool_calls") or ())
        elif message["role"] == "tool" and (call := next(waiting, None)) is not None:
            function = call["function"]
            try:
                arguments = json.loads(function["arguments"])
            except ValueError:
                arguments = {}
            result = CallResult(str(message.get("content") or ""))
            yield CallRecord(turn, function["name"], arguments if isinstance(arguments, dict) else {}, result)
