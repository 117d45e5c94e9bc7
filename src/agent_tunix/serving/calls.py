"""Calls of a policy by a program, such as an agent, and the rows of tokens that they make."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of the policy.

    Attributes:
        prompt: Token ids that the policy continued.
        tokens: Sampled ids.
        logps: Log-probability of each sampled id.
        version: Number of weight updates of the policy that sampled.
        finish_reason: `stop`, `length` or `cancelled`.
        messages: Messages of the request as the server read them; empty for a completion of plain text or ids.
        reply: The assistant's message as it was returned; None for a completion of plain text or ids.
        tools: Declarations of tools of the request.
        seconds: Wall time.
        num_cached: Tokens of the prompt that were not read again, because their keys and values were kept.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    version: int
    finish_reason: str
    messages: Sequence[Mapping[str, Any]] = ()
    reply: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0
    num_cached: int = 0


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Tokens that train together: calls of which each continues the tokens of the one before.

    Attributes:
        prompt: Token ids before the first sampled one.
        tokens: Token ids after them.
        sampled: True for each of `tokens` that the policy sampled in a call of this row.
        logps: Log-probability of each of `tokens`; 0 where not sampled.
        calls: Numbers of the row's calls.
        parent: Number of the row from which this one forked; None for the first and for one that shares too little.
        num_shared: Number of tokens at the start of the prompt that it shares with an earlier row; 0 for the first.
        cause: A `ForkCause`, the reason why this row does not continue an earlier one; None for the first.
        first_difference: The first text in which the prompt differs from the earlier row that it shares most with; ""
            without one.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    sampled: tuple[bool, ...]
    logps: tuple[float, ...]
    calls: tuple[int, ...]
    parent: int | None = None
    num_shared: int = 0
    cause: str | None = None
    first_difference: str = ""
