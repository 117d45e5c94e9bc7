"""Closest match of an unknown name."""

import difflib
from collections.abc import Iterable


def closest(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name, with the closest match if there is one."""
    matches = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else "."
