"""Replies of workers that run code of others: JSON, every part of which is looked at before it is believed.

Code in such a worker can write to its connection whatever it likes. Reading JSON makes numbers, texts, lists and
mappings and runs nothing; a reply that is too large, too deep or of another form than a worker's ends that worker. What
passes can still be a lie, but only about the scores that the code was asked for.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from agent_tunix.rewards.execution.wire import LONGEST_DETAIL, BrokenFrameError, PlainScore, frame
from agent_tunix.rewards.sample import LARGEST_VALUE, Outcome
from agent_tunix.visible_text import one_line

LARGEST_REPLY_BYTES = 8 * 2**20
_DEEPEST = 8
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def pack(reply: object) -> bytes:
    """A frame."""
    return frame(json.dumps(reply, separators=(",", ":"), default=_as_list).encode())


def load(content: bytes) -> list[Any]:
    """A reply, whose scores are such as `wire.from_plain` takes.

    Raises:
        BrokenFrameError: It is none.
    """
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError(f"a reply that is no JSON: {str(error)[:100]}") from None
    if not isinstance(reply, list) or not reply or not isinstance(reply[0], str):
        raise BrokenFrameError("a reply that names no kind")
    kind, *rest = reply
    parts = [_read_detail(part) if isinstance(part, str) else part for part in rest]
    if any(isinstance(part, bool | float | Mapping | None) for part in parts):
        raise BrokenFrameError("a reply of another form")
    return [kind, *([_read_score(score) for score in part] if isinstance(part, list) else part for part in parts)]


def _as_list(value: object) -> list[Any]:
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def _read_score(score: Any) -> PlainScore:
    if not isinstance(score, list) or len(score) != 7:
        raise BrokenFrameError("what is no score")
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
        and all(isinstance(metric, float) for metric in metrics.values())
    ):
        raise BrokenFrameError("a score with parts of another form")
    return (value, outcome, _read_detail(detail), extras, float(seconds), components, metrics)


def _read_detail(text: str) -> str:
    """At most as long as a worker's own, and on one line of a terminal."""
    return one_line(text[:LONGEST_DETAIL])


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) <= LARGEST_VALUE


def _is_shallow(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return True
    return depth > 0 and all(_is_shallow(item, depth - 1) for item in value)
