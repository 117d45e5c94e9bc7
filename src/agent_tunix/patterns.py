"""Limits on the regular expressions of others, which may take all memory before they match anything.

The library `regex` writes a repeated part as often as it must occur, so `((a{9}){9}){9}` becomes 729 parts. Its time
limits apply to matching only.
"""

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import regex

_LONGEST, _LARGEST, _DEEPEST = 10_000, 50_000, 50
# Full case-folding writes out ranges, and calls of groups need no end. Verbose patterns, version 1 of the syntax,
# comments and POSIX classes have other brackets than the rest.
_TOKEN = re.compile(
    r"""\\.
    | (?P<set> \[\^?+\]?+ (?>(?:\\.|[^\]\\])*) \] )
    | (?P<open> \( (?>(?P<refused> \? (?: [A-Za-z-]*[fxV] | [#R&] | P[>&] | [+-]?\d ) )?) )
    | (?P<close> \) )
    | (?P<repeat> \+ | \{ (?P<least>\d*) (?:,\d*)? \} ) [?+]?+
    | . """,
    re.DOTALL | re.VERBOSE,
)


@functools.lru_cache(maxsize=8)  # that of `regex` keeps hundreds of patterns
def compile_pattern(pattern: str) -> "regex.Pattern[str]":
    """Return a compiled pattern.

    Raises:
        ValueError: It is not a regular expression, or `check_pattern` refuses it.
    """
    import regex

    check_pattern(pattern)
    try:
        return regex.compile(pattern, cache_pattern=False)
    except (regex.error, RecursionError) as error:
        raise ValueError(str(error)) from error


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that may take much memory to compile.

    Raises:
        ValueError: The pattern has more than 10,000 characters, more than 50,000 with its repeats written out, or more
            than 50 nested groups; or it is verbose, calls a group, folds case fully, or has a comment or a POSIX class.
    """
    if len(pattern) > _LONGEST:
        raise ValueError(f"it may have {_LONGEST:,} characters, but has {len(pattern):,}")
    groups: list[int] = []  # size of each open group up to the next one within it
    size = last = 0  # of the current group, and of the last part of it
    for token in _TOKEN.finditer(pattern):
        if token["refused"] or "[:" in (token["set"] or "")[1:]:
            raise ValueError(f"it may not use {token[0]!r:.40}")
        if token["open"]:
            groups.append(size)
            size, last = 1, 0
        elif token["close"]:
            last = size
            size += groups.pop() if groups else 0
        elif token["repeat"]:
            added = last * int(token["least"] or token["repeat"] == "+")
            size, last = size + added, last + added
        else:
            last = len(token[0])
            size += last
        if len(groups) > _DEEPEST:
            raise ValueError(f"it may have {_DEEPEST} nested groups, but has more")
        if size > _LARGEST:
            raise ValueError(f"it may have {_LARGEST:,} characters with its repeats written out, but has more")
