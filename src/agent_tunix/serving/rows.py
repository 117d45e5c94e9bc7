"""Rows of tokens from the calls of a rollout: what is sampled is what trains.

A call whose prompt begins with all tokens of an earlier row, those that were sampled included, continues that row. The
tokens in between, such as a tool's result, are not sampled. Every other call begins a row of its own, a fork, whose
prompt is the call's. Of two calls that continue the same row, the first continues it and the second forks. Tokens that
a fork shares with its parent belong to its prompt, so each sampled token trains exactly once.

Calls that were cancelled are in no row: nobody saw all their tokens. Neither are calls without a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_tunix.environments import Message
from agent_tunix.serving.calls import RecordedCall, TokenRow
from agent_tunix.serving.forks import Decode, ForkCause, common_length, describe_difference, find_cause


@dataclass(eq=False)
class _OpenRow:
    """A row that further calls may continue.

    Attributes:
        tokens: Its tokens, its prompt included.
        num_prompt: Number of these before the first sampled one.
        sampled: True for each of `tokens` that the policy sampled.
        logps: Log-probability of each of `tokens`; 0 where not sampled.
        calls: Numbers of its calls.
        parent: Number of the row from which it forked.
        num_shared: Number of tokens of its prompt that it shares with an earlier row.
        cause: Reason why it does not continue an earlier row.
        first_difference: Description of the first difference.
    """

    tokens: tuple[int, ...]
    num_prompt: int
    sampled: list[bool]
    logps: list[float]
    calls: list[int] = field(default_factory=list)
    parent: int | None = None
    num_shared: int = 0
    cause: ForkCause | None = None
    first_difference: str = ""

    def add(self, number: int, call: RecordedCall) -> None:
        """Continue the row with a call, whose prompt begins with all its tokens."""
        num_read = len(call.prompt) - len(self.tokens)
        self.tokens = call.prompt + call.tokens
        self.sampled += [False] * num_read + [True] * len(call.tokens)
        self.logps += [0.0] * num_read + list(call.logps)
        self.calls.append(number)

    def close(self) -> TokenRow:
        n = self.num_prompt
        return TokenRow(
            prompt=self.tokens[:n],
            tokens=self.tokens[n:],
            sampled=tuple(self.sampled[n:]),
            logps=tuple(self.logps[n:]),
            calls=tuple(self.calls),
            parent=self.parent,
            num_shared=self.num_shared,
            cause=self.cause,
            first_difference=self.first_difference,
        )


def make_rows(calls: Sequence[RecordedCall], decode: Decode | None = None) -> list[TokenRow]:
    """Return the rows of a rollout's calls.

    Args:
        calls: Calls in the order in which they ended.
        decode: Function from ids to text, which describes the first difference of forks; None to leave it out.
    """
    rows: list[_OpenRow] = []
    for number, call in enumerate(calls):
        if not is_trained(call):
            continue
        # The longest, so that a call continues its own conversation if another row is the beginning of it.
        row = max((row for row in rows if _continues(call, row)), key=lambda row: len(row.tokens), default=None)
        if row is None:
            row = _fork(rows, call, decode)
            rows.append(row)
        row.add(number, call)
    return [row.close() for row in rows]


def is_trained(call: RecordedCall) -> bool:
    """Return True if the tokens of a call train: it has some, and was not cancelled."""
    return bool(call.tokens) and call.finish_reason != "cancelled"


def main_row(rows: Sequence[TokenRow]) -> int | None:
    """Return the number of the row whose transcript stands for the rollout; None without rows.

    It is the row of the last call. Of an agent that rewrites its history, only this row contains the final answer.
    """
    return max(range(len(rows)), key=lambda number: rows[number].calls[-1], default=None)


def transcript(calls: Sequence[RecordedCall], rows: Sequence[TokenRow], decode: Decode) -> list[Message]:
    """Return the messages of the main row: those of its last call, and the reply to it; none without rows.

    Args:
        calls: Calls of the rollout.
        rows: Its rows.
        decode: Function from ids to text, for completions of plain text or ids.
    """
    main = main_row(rows)
    if main is None:
        return []
    call = calls[rows[main].calls[-1]]
    if call.reply is None:
        return [
            {"role": "user", "content": decode(call.prompt)},
            {"role": "assistant", "content": decode(call.tokens)},
        ]
    return [*map(dict, call.messages), dict(call.reply)]


def _continues(call: RecordedCall, row: _OpenRow) -> bool:
    return call.prompt[: len(row.tokens)] == row.tokens


def _fork(rows: Sequence[_OpenRow], call: RecordedCall, decode: Decode | None) -> _OpenRow:
    n = len(call.prompt)
    row = _OpenRow(call.prompt, n, [False] * n, [0.0] * n)
    if rows:
        lengths = [common_length(other.tokens, call.prompt) for other in rows]
        shared = row.num_shared = max(lengths)
        number = lengths.index(shared)
        other = rows[number]
        row.cause = find_cause(other.tokens, other.sampled, call.prompt, shared, decode)
        row.parent = None if row.cause is ForkCause.NEW else number
        if decode is not None:
            row.first_difference = describe_difference(other.tokens, call.prompt, shared, decode)
    return row
