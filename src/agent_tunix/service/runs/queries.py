"""Queries of a run's rollouts, and the cursors between pages of results."""

import base64
import binascii
import hashlib
import json
import math
from dataclasses import astuple, dataclass
from typing import Literal, get_args

from agent_tunix.service.problems import Problem

MAX_LIMIT = 100
MAX_QUERY = 200

Order = Literal["place", "reward", "-reward", "length", "-length"]
Outcome = Literal["scored", "not_applicable", "bad_reference", "error", "timeout"]
StopReason = Literal[
    "stop",
    "length",
    "finished",
    "environment_done",
    "max_turns",
    "max_turn_tokens",
    "max_episode_tokens",
    "error",
]


@dataclass(frozen=True)
class RolloutQuery:
    """Filter of completions, and their order within a step; steps are always in order."""

    step: int | None = None
    group: int | None = None
    outcome: str | None = None
    least: float | None = None
    most: float | None = None
    text: str = ""  # text that the response contains, ignoring case; "" for all
    # `place`: as scored; `reward` or `length`: ascending, with a leading `-` descending. Completions without a reward
    # come last.
    order: str = "place"
    # Only those that ended for this reason; `stop` and `length` are of completions, the others of episodes.
    stop_reason: str | None = None
    tool: str = ""  # only episodes that called the tool of this name; "" for all

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise Problem(400, "invalid_sort", f"sort must be one of {', '.join(get_args(Order))}", "sort")
        if self.outcome is not None and self.outcome not in get_args(Outcome):
            raise Problem(400, "invalid_outcome", f"outcome must be one of {', '.join(get_args(Outcome))}", "outcome")
        if self.stop_reason is not None and self.stop_reason not in get_args(StopReason):
            reasons = ", ".join(get_args(StopReason))
            raise Problem(400, "invalid_stop_reason", f"stop_reason must be one of {reasons}", "stop_reason")
        for param, text in (("q", self.text), ("tool", self.tool)):
            if len(text) > MAX_QUERY:
                said = f"{param} must have at most {MAX_QUERY} characters, not {len(text)}"
                raise Problem(400, f"invalid_{param}", said, param)
        for param, value in (("min_reward", self.least), ("max_reward", self.most)):
            if value is not None and not math.isfinite(value):
                raise Problem(400, f"invalid_{param}", f"{param} must be a finite number", param)

    def digest(self) -> str:
        """Return a digest of the query, which its cursors contain."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Position:
    """Position after row `row` of a step, or before its first row for -1; `key` is the value the row was ordered by."""

    step: int
    key: float | None
    row: int


def write_cursor(query: RolloutQuery, position: Position) -> str:
    """Return the cursor for a position."""
    content = json.dumps([query.digest(), position.step, position.key, position.row], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def read_cursor(query: RolloutQuery, cursor: str) -> Position:
    """Return the position of a cursor; raise Problem if it is not from a page of this query."""
    try:
        content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        digest, step, key, row = json.loads(content)
        key = float(key) if type(key) in (int, float) else key
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError):
        digest = step = key = row = None
    numbers = type(step) is int and type(row) is int and (key is None or type(key) is float)
    if not numbers or digest != query.digest() or not 0 <= step < 2**31 or not -1 <= row < 2**31:
        raise Problem(400, "invalid_cursor", "after must be the `next` of a page of the same query", "after")
    return Position(step, key, row)
