"""Shortening of texts for display."""

from collections.abc import Sequence

_SHORTEST = 100


def cut(text: str, longest: int) -> str:
    """Cut a text to about `longest` characters, noting how many were left out; the end, with the answer, is kept."""
    if len(text) <= longest:
        return text
    tail = longest // 3
    head = longest - tail
    return f"{text[:head]}\n… {len(text) - longest:,} characters omitted …\n{text[-tail:]}"


def fair_length(lengths: Sequence[int], total: int) -> int:
    """Return the length to which texts must be cut to have about `total` characters together; at least 100.

    Short texts stay whole and leave their room to the long ones.

    >>> fair_length([10, 2000, 5000], 3010)
    1500
    """
    left = total
    for number, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - number)
        if length > share:
            return max(share, _SHORTEST)
        left -= length
    return max(total, _SHORTEST)
