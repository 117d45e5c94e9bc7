"""Reasons for failures of a reward, grouped: one exception at one line is one reason, whatever its message says."""

import re
from collections.abc import Iterable

# `KeyError: 'score of 19' (/…/mine.py:5: raise KeyError(…))`, as `Score.detail` has it.
_EXCEPTION = re.compile(r"(?P<kind>\b[A-Za-z_][\w.]*): .*\((?P<place>[^()]+:\d+): ", re.DOTALL)
# Room for a fault as `describe_fault` words it. Rewards and stored runs may hold any text, and the search takes time
# quadratic in its length.
_LONGEST_DETAIL = 1000


def group_reasons(details: Iterable[str]) -> list[tuple[str, int]]:
    """Return each reason with its number of completions, the most frequent first.

    Args:
        details: `Score.detail` of the completions without a score.

    Returns:
        The text of the first completion of each reason, shortened, and the number of completions.
    """
    counts: dict[tuple[str, ...], int] = {}
    texts: dict[tuple[str, ...], str] = {}
    for detail in (detail[:_LONGEST_DETAIL] for detail in details):
        match = _EXCEPTION.search(detail)
        key = (match["kind"], match["place"]) if match else (re.sub(r"\d+", "0", detail),)
        counts[key] = counts.get(key, 0) + 1
        texts.setdefault(key, detail)
    return sorted(((texts[key], count) for key, count in counts.items()), key=lambda one: -one[1])
