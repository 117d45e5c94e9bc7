"""Reasons why a call does not continue a row of tokens."""

import enum
from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

# Tokens of each side of the first difference that its description shows, and tokens before it.
_SHOWN = 8
_SHOWN_BEFORE = 4
# Tokens that must agree for two places to hold the same text.
_WINDOW = 8


class ForkCause(enum.StrEnum):
    """Reason why a call does not continue a row."""

    BRANCH = "branch"  # another reply to the same prompt, or another question after the same beginning
    DROPPED = "dropped"  # the prompt leaves out a part of an earlier reply, such as its thoughts
    RETOKENISED = "retokenised"  # the prompt has the same text as other tokens
    REWRITTEN = "rewritten"  # the prompt changes earlier turns
    NEW = "new"  # the prompt shares too little with any row


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of equal tokens at the start of two sequences of the same type."""
    low, high = 0, min(len(first), len(second))
    while low < high:  # comparing slices is much faster than comparing tokens one by one
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def find_cause(
    row: tuple[int, ...], sampled: Sequence[bool], prompt: tuple[int, ...], shared: int, decode: Decode | None
) -> ForkCause:
    """Return the reason why a prompt does not continue the row with which it shares most.

    Args:
        row: Tokens of the row, its prompt included.
        sampled: True at those that the policy sampled.
        prompt: The prompt. It does not begin with the whole row.
        shared: Number of equal tokens at the start of both.
        decode: Function from ids to text; None if unknown, so that `RETOKENISED` is not told from `REWRITTEN`.
    """
    if shared == len(prompt):
        return ForkCause.BRANCH
    old, new = row[shared:], prompt[shared:]
    if decode is not None and _same_text(decode(old[:_WINDOW]), decode(new[:_WINDOW])):
        return ForkCause.RETOKENISED
    if sampled[shared]:
        return ForkCause.DROPPED if _contains(old[1:], new[:_WINDOW]) else ForkCause.REWRITTEN
    following = [token for token, own in zip(old, sampled[shared:], strict=True) if own][:_WINDOW]
    if following and _contains(new, tuple(following)):
        return ForkCause.REWRITTEN
    first_sampled = next((place for place, own in enumerate(sampled) if own), len(row))
    return ForkCause.BRANCH if 2 * shared >= min(first_sampled, len(prompt)) else ForkCause.NEW


def describe_difference(row: tuple[int, ...], prompt: tuple[int, ...], shared: int, decode: Decode) -> str:
    """Return the text of both sides at their first difference; "" if the prompt is the beginning of the row."""
    if shared == len(prompt):
        return ""
    before = decode(row[max(0, shared - _SHOWN_BEFORE) : shared])
    old, new = row[shared : shared + _SHOWN], prompt[shared : shared + _SHOWN]
    texts = decode(old), decode(new)
    if texts[0] == texts[1]:
        return f"after {before!r}: the tokens {list(old)} of {texts[0]!r} became {list(new)}"
    return f"after {before!r}: {texts[0]!r} became {texts[1]!r}"


def _same_text(first: str, second: str) -> bool:
    """Return True if the shorter of two texts begins the longer one. The last character of each may be incomplete."""
    length = min(len(first), len(second)) - 1
    return length > 0 and first[:length] == second[:length]


def _contains(tokens: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(tokens[start : start + len(part)] == part for start in range(len(tokens) - len(part) + 1))
