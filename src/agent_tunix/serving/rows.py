"""Rows of tokens from the calls of a rollout: what is sampled is what trains.

A call whose prompt begins with all tokens of an earlier row, those that were sampled included, continues that row. The
tokens in between, such as a tool's result, are not sampled. Every other call begins a row of its own, a fork, whose
prompt is the call's. Of two calls that continue the same row, the first continues it and the second forks. Tokens that
a fork shares with its parent belong to its prompt, so each sampled token trains exactly once.

Calls that were cancelled are in no row: nobody saw all their tokens. Neither are calls without a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.forks import Decode, ForkCause, common_length, describe_difference, find_cause


@dataclass
class TokenRow:
    """Tokens that train together: calls of which each continues the tokens of the one before.

    Attributes:
        ids: Token ids, the prompt of the first call included.
        num_prompt: Number of ids before the first sampled one.
        sampled: True for each id after the prompt that the policy sampled in a call of this row.
        logps: Log-probability of each id after the prompt; 0 where not sampled.
        calls: Numbers of the row's calls.
        parent: Number of the row from which this one forked; None for the first and for one that shares too little.
        num_shared: Number of tokens at the start of the prompt that it shares with an earlier row; 0 for the first.
        cause: Reason why this row does not continue an earlier one; None for the first.
        first_difference: The first text in which the prompt differs from the earlier row that it shares most with; ""
            without one.
    """

    ids: tuple[int, ...]
    num_prompt: int
    sampled: list[bool] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    parent: int | None = None
    num_shared: int = 0
    cause: ForkCause | None = None
    first_difference: str = ""

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids before the first sampled one."""
        return self.ids[: self.num_prompt]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids after the prompt."""
        return self.ids[self.num_prompt :]

    def add(self, number: int, call: RecordedCall) -> None:
        """Continue the row with a call, whose prompt begins with all its ids."""
        num_read = len(call.prompt) - len(self.ids)
        self.ids = call.prompt + call.tokens
        self.sampled += [False] * num_read + [True] * len(call.tokens)
        self.logps += [0.0] * num_read + list(call.logps)
        self.calls.append(number)


def make_rows(calls: Sequence[RecordedCall], decode: Decode | None = None) -> list[TokenRow]:
    """Return the rows of a rollout's calls.

    Args:
        calls: Calls in the order in which they ended.
        decode: Function from ids to text, which describes the first difference of forks; None to leave it out.
    """
    rows: list[TokenRow] = []
    for number, call in enumerate(calls):
        if not is_trained(call):
            continue
        continued = [row for row in rows if call.prompt[: len(row.ids)] == row.ids]
        if not continued:
            rows.append(_fork(rows, call, decode))
        # The longest, so that a call continues its own conversation if another row is the beginning of it.
        max(continued or rows[-1:], key=lambda row: len(row.ids)).add(number, call)
    return rows


def is_trained(call: RecordedCall) -> bool:
    """Return True if the tokens of a call train: it has some, and was not cancelled."""
    return bool(call.tokens) and call.finish_reason != "cancelled"


def main_row(rows: Sequence[TokenRow]) -> int | None:
    """Return the number of the row whose transcript stands for the rollout; None without rows.

    It is the row of the last call. Of an agent that rewrites its history, only this row contains the final answer.
    """
    return max(range(len(rows)), key=lambda number: rows[number].calls[-1], default=None)


def _fork(rows: Sequence[TokenRow], call: RecordedCall, decode: Decode | None) -> TokenRow:
    row = TokenRow(call.prompt, len(call.prompt))
    if rows:
        lengths = [common_length(other.ids, call.prompt) for other in rows]
        shared = row.num_shared = max(lengths)
        number = lengths.index(shared)
        other = rows[number]
        sampled = [False] * other.num_prompt + other.sampled
        row.cause = find_cause(other.ids, sampled, call.prompt, shared, decode)
        row.parent = None if row.cause is ForkCause.NEW else number
        if decode is not None:
            row.first_difference = describe_difference(other.ids, call.prompt, shared, decode)
    return row
