"""Conversation of an episode for display: turns of the policy with their tool calls, and replies of the environment."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_tunix.tracking.report.cutting import cut, fair_length
from agent_tunix.tracking.rollouts.encoding import to_json

Record = Mapping[str, Any]

_MOST_TURNS = 100
_MOST_CALLS = 200
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ShownCall:
    """Tool call and its result."""

    name: str  # name of the tool; "" if it could not be read
    arguments: str = ""  # arguments as text; "" for a malformed call, whose arguments could not be read
    result: str = ""
    seconds: float | None = None  # wall time; None if unknown, or if the tool was not called
    # A `CallOutcome`; "" if unknown, as for a call that ended the episode. A turn that seems to contain a call in
    # another form has a call without a name, whose outcome says so.
    outcome: str = ""

    @property
    def time(self) -> str:
        """The wall time for a person; "" if it is None."""
        if self.seconds is None:
            return ""
        value, unit = (self.seconds, "s") if self.seconds >= 1 else (1000 * self.seconds, "ms")
        return f"{float(f'{value:.3g}'):g}\N{NO-BREAK SPACE}{unit}"

    @property
    def failed(self) -> bool:
        """True if the tool gave no result. A result that was cut counts as one."""
        return self.outcome not in ("", "ok", "too_long")


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """Turn of a conversation."""

    role: str  # `assistant` for the policy, `user` for the environment; "" for a note on turns that were left out
    text: str  # text of the turn
    calls: tuple[ShownCall, ...] = ()
    advantage: float | None = None  # of a turn of the policy, with credit by turn

    @property
    def texts(self) -> Iterator[str]:
        """Texts of the turn and of its calls."""
        yield self.text
        for call in self.calls:
            yield from (call.arguments, call.result)


def show_conversation(
    messages: Sequence[Record],
    calls: Sequence[Record],
    first: int,
    longest: int,
    unread: Sequence[Record] = (),
    advantages: Sequence[float] = (),
) -> list[ShownTurn]:
    """Return the turns of an episode, of about `longest` characters together.

    The n-th `tool` message answers the n-th call. The call's arguments are in the turn before, under the same id; a
    malformed call has none.

    Args:
        messages: Messages of the episode, those of the prompt included.
        calls: Calls of `EpisodeSummary`, in order.
        first: Number of messages of the prompt.
        longest: Limit on the number of characters; longer texts lose their middle.
        unread: Turns that seem to contain a call that was not read, as in `EpisodeSummary.unread_calls`.
        advantages: Those of the policy's turns, with credit by turn. They are not shown if the messages have another
            number of turns, as those of an agent may.
    """
    records = iter(calls)
    turns: list[_Turn] = []
    for message in messages[first:]:
        if message["role"] == "tool":
            turns[-1].answer(message, next(records, {}))
        else:
            if turns:
                turns[-1].end(iter(()))
            turns.append(_Turn(message))
    if turns:
        turns[-1].end(records)
    of_policy = [turn for turn in turns if turn.message["role"] == "assistant"]
    for record in unread:
        of_policy[record["turn"]].calls.append(ShownCall("", outcome=f"not read, form {record['form']}"))
    shown = [turn.shown() for turn in turns]
    if len(of_policy) == len(advantages):
        left = iter(advantages)
        shown = [replace(turn, advantage=next(left)) if turn.role == "assistant" else turn for turn in shown]
    return _shorten(shown, longest)


def as_text(value: Any) -> str:
    """Return a value as text: strings unchanged, None as "", everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(to_json(value), ensure_ascii=False)


@dataclass
class _Turn:
    """A turn whose calls are being answered; the arguments of open calls are kept by id."""

    message: Record
    calls: list[ShownCall] = field(default_factory=list)
    open: dict[str, ShownCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, call in enumerate(self.message.get("tool_calls") or ()):
            function = call.get("function", call)
            shown = ShownCall(as_text(function.get("name")), as_text(function.get("arguments")))
            self.open[as_text(call.get("id", number))] = shown

    def answer(self, message: Record, record: Record) -> None:
        """Add the call that a `tool` message answers."""
        call = ShownCall(as_text(message.get("name", record.get("name"))))
        if "tool_call_id" in message:
            call = self.open.pop(as_text(message["tool_call_id"]), call)
        elif self.open and record.get("outcome") != "malformed":
            call = self.open.pop(next(iter(self.open)))
        self.calls.append(_with_record(replace(call, result=_content(message)), record))

    def end(self, records: Iterator[Record]) -> None:
        """Add the calls that were not answered, because the episode ended."""
        self.calls += [_with_record(call, next(records, {})) for call in self.open.values()]

    def shown(self) -> ShownTurn:
        return ShownTurn(self.message["role"], _content(self.message), tuple(self.calls))


def _with_record(call: ShownCall, record: Record) -> ShownCall:
    return replace(call, seconds=record.get("seconds") or None, outcome=record.get("outcome", ""))


def _content(message: Record) -> str:
    """Return the text of a message, which may have its parts in a list."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return as_text(content)
    texts = (part.get("text", part) if isinstance(part, Mapping) else part for part in content)
    return "\n".join(as_text(text) for text in texts)


def _shorten(turns: Sequence[ShownTurn], longest: int) -> list[ShownTurn]:
    half = _MOST_TURNS // 2
    if len(turns) > _MOST_TURNS:
        turns = [*turns[:half], ShownTurn("", f"… {len(turns) - 2 * half:,} turns omitted …"), *turns[-half:]]
    room = _MOST_CALLS
    kept = []
    for turn in turns:
        calls = turn.calls[:room]
        room -= len(calls)
        left_out = len(turn.calls) - len(calls)
        note = f"\n… {left_out:,} calls omitted …" if left_out else ""
        kept.append(replace(turn, role=cut(turn.role, _LONGEST_NAME), text=turn.text + note, calls=calls))
    most = fair_length([len(text) for turn in kept for text in turn.texts], longest)
    return [
        replace(turn, text=cut(turn.text, most), calls=tuple(_shorten_call(call, most) for call in turn.calls))
        for turn in kept
    ]


def _shorten_call(call: ShownCall, longest: int) -> ShownCall:
    name, outcome = cut(call.name, _LONGEST_NAME), cut(call.outcome, _LONGEST_NAME)
    return ShownCall(name, cut(call.arguments, longest), cut(call.result, longest), call.seconds, outcome)
