"""Replies of workers that run other people's code: JSON, validated in every part.

Code in such a worker can write anything to its connection. JSON can only hold numbers, texts, lists and mappings, and
reading it runs no code. A reply that is too large, too deep or malformed ends the worker. A valid reply can still be
false, but only about the scores that the code was asked for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.execution.workers.frames import BrokenFrameError
from agent_tunix.rewards.execution.wire import LARGEST_EXTRA_ITEMS, LONGEST_DETAIL, LONGEST_TEXT, TOO_MUCH, PlainScore
from agent_tunix.rewards.sample import LARGEST_VALUE, Outcome
from agent_tunix.visible_text import escape_hidden, one_line

LARGEST_REPLY_BYTES = 2 * 2**20
_DEEPEST = 8
# Limits on items in extras, components and metrics, for one score (as `wire.to_plain` cuts it) and a whole reply.
_MOST_ITEMS_OF_SCORE = LARGEST_EXTRA_ITEMS + 100
_MOST_ITEMS = 100_000
# Characters of the texts in the extras of one score, with escapes. Every completion's are stored.
_MOST_TEXT = 2**16
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def load(content: bytes) -> list[Any]:
    """Return a reply whose scores `wire.from_plain` accepts; raise BrokenFrameError if the content is malformed."""
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(f"a reply that is not JSON: {str(error)[:100]}") from None
    if not isinstance(reply, list) or not reply or not isinstance(reply[0], str):
        raise BrokenFrameError("a reply without a kind")
    kind, *rest = reply
    parts = [_read_detail(part) if isinstance(part, str) else part for part in rest]
    if any(isinstance(part, bool | float | Mapping | None) for part in parts):
        raise BrokenFrameError("a reply of another form")
    if any(isinstance(part, list) and has_too_many_items(part) for part in parts):
        raise BrokenFrameError("a reply of too many parts")
    return [kind, *([_read_score(score) for score in part] if isinstance(part, list) else part for part in parts)]


def has_too_many_items(scores: Sequence[Any]) -> bool:
    """Return True if scores, valid or not, have more items in their extras and metrics than allowed."""
    counts = []
    for score in scores:
        counts.append(_count_items(score, _DEEPEST + 2) if isinstance(score, list | tuple) else 0)
        if counts[-1] > _MOST_ITEMS_OF_SCORE:
            return True
    return sum(counts) > _MOST_ITEMS


def _count_items(value: Any, depth: int) -> int:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return 0
    return len(value) + (sum(_count_items(item, depth - 1) for item in value) if depth else 0)


def _read_score(score: Any) -> PlainScore:
    if not isinstance(score, list) or len(score) != 7:
        raise BrokenFrameError("something that is not a score")
    value, outcome, detail, extras, seconds, components, metrics = score
    if not (
        (value is None or _is_number(value))
        and isinstance(outcome, str)
        and outcome in _OUTCOMES
        and (value is None) is (outcome != Outcome.SCORED)
        and isinstance(detail, str)
        and _is_number(seconds)
        and seconds >= 0
        and isinstance(extras, dict)
        and _is_shallow(extras, _DEEPEST)
        and isinstance(components, dict)
        and all(part is None or _is_number(part) for part in components.values())
        and isinstance(metrics, dict)
        and all(isinstance(metric, float) and _is_number(metric) for metric in metrics.values())
    ):
        raise BrokenFrameError("a score with parts of another form")
    named = {_read_detail(name): part if part is None else float(part) for name, part in components.items()}
    measured = {_read_detail(name): metric for name, metric in metrics.items()}
    shown = _read_extra(extras, [_MOST_TEXT])
    return (value, outcome, _read_detail(detail), shown, float(seconds), named, measured)


def _read_detail(text: str) -> str:
    """Return the text on one line, cut to the length of a worker's details."""
    return one_line(text[:LONGEST_DETAIL])


def _read_extra(value: Any, room: list[int]) -> Any:
    """Return the value with cut texts and escaped control characters; without texts once there is no room for them.

    `room` is the number of characters that are left.
    """
    if isinstance(value, str):
        return _fitted(escape_hidden(value[: min(LONGEST_TEXT, max(0, room[0])) + 1]), room)
    if isinstance(value, dict):
        return {_fitted(_read_detail(name), room): _read_extra(item, room) for name, item in value.items()}
    if isinstance(value, list):
        return [_read_extra(item, room) for item in value]
    return value


def _fitted(text: str, room: list[int]) -> str:
    room[0] -= len(text)
    return text if room[0] >= 0 else TOO_MUCH


def _is_number(value: object) -> bool:
    # No conversion to float, which fails for large integers.
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST_VALUE <= value <= LARGEST_VALUE


def _is_shallow(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in value)
