"""What may be asked of a run's rollouts, and the cursors by which an answer goes on."""

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


@dataclass(frozen=True)
class RolloutQuery:
    """Which completions are wanted, and in which order those of a step come; steps come in theirs.

    Attributes:
        step: Only of this step.
        group: Only of this prompt of a step.
        outcome: Only with this outcome.
        least: Only with a reward of at least this.
        most: Only with a reward of at most this.
        text: Only with this in the response, upper and lower case alike; "" for all.
        order: `place` as they were scored; by `reward` or `length`, and with a `-` the greatest first. Those without a
            reward come last.

    Raises:
        Problem: Something of it cannot be asked.
    """

    step: int | None = None
    group: int | None = None
    outcome: str | None = None
    least: float | None = None
    most: float | None = None
    text: str = ""
    order: str = "place"

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise Problem(400, "invalid_sort", f"sort must be one of {', '.join(get_args(Order))}", "sort")
        if self.outcome is not None and self.outcome not in get_args(Outcome):
            raise Problem(400, "invalid_outcome", f"outcome must be one of {', '.join(get_args(Outcome))}", "outcome")
        if len(self.text) > MAX_QUERY:
            raise Problem(400, "invalid_q", f"q must have at most {MAX_QUERY} characters, not {len(self.text)}", "q")
        for param, value in (("min_reward", self.least), ("max_reward", self.most)):
            if value is not None and not math.isfinite(value):
                raise Problem(400, f"invalid_{param}", f"{param} must be a finite number", param)

    def digest(self) -> str:
        """What a cursor of this query bears."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Position:
    """A place among the answers: after the row of a step, or, with -1, before the step's first.

    Attributes:
        step: The step.
        key: What the row was ordered by; None for -1, and where it has none.
        row: Its number within the step.
    """

    step: int
    key: float | None
    row: int


def write_cursor(query: RolloutQuery, position: Position) -> str:
    """The cursor of a place."""
    content = json.dumps([query.digest(), position.step, position.key, position.row], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def read_cursor(query: RolloutQuery, cursor: str) -> Position:
    """The place of a cursor.

    Raises:
        Problem: It is none that a page of this query gave.
    """
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
