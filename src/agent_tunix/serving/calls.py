"""Calls of a policy by a program, such as an agent."""

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
