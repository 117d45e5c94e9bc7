"""Shortening of texts for display, and JSON that is safe inside an HTML page."""

import json
from collections.abc import Sequence
from typing import Any

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


def to_inert_json(value: Any) -> str:
    """Return JSON for `<script type="application/json">`; without `<`, it cannot end the element or start another.

    Half a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").encode("utf-8", "replace").decode("utf-8")
