"""Pages of a run's rollouts. There may be millions of them, but a page reads little more than it shows.

File names tell the steps of a file, and footers tell the size of each step. The columns that decide which rows of a
step match are read first, and the shown columns only if rows match. The reading for a page is limited: if few rows
match, a page may be short or empty and still have a next page.
"""

import base64
import hashlib
import json
import math
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agent_tunix.errors import AgentTunixError
from agent_tunix.rewards.rounding import highest_within, lowest_reaching
from agent_tunix.tracking.metrics_file import to_plain
from agent_tunix.tracking.rollouts.files import list_files
from agent_tunix.tracking.rollouts.reader import Footers, RolloutReader, StepPlace

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TEXT = 200
_BUDGET_BYTES = 128 * 2**20
_BUDGET_STEPS = 500
# Largest page of a list, and of the completions of one prompt, before they are written as JSON or HTML.
_PAGE_BYTES = 16 * 2**20
_GROUP_BYTES = 64 * 2**20
_MOST_OF_A_GROUP = 10_000
_MOST_SHARED = 100
# Column by which a step is sorted.
_KEYS = {"reward": "total", "length": "num_tokens"}

SHOWN: tuple[str, ...] = (
    *("step", "sampled_step", "group", "rollout_id", "prompt", "response", "outcome", "detail", "total", "advantage"),
    *("num_tokens", "stop_reason", "components"),
)
# Adds the dataset row, and the extras and logs of rewards, as stored JSON.
SHOWN_IN_FULL = (*SHOWN, "columns", "extras", "logged")
_COMPONENT = ("name", "value", "outcome", "detail", "weight", "weighed")
_COMPONENT_IN_FULL = (*_COMPONENT, "gate_shut", "term_detail")

Order = Literal["place", "reward", "-reward", "length", "-length"]
Outcome = Literal["scored", "not_applicable", "bad_reference", "error", "timeout"]
StopReason = Literal[
    "stop", "length", "finished", "environment_done", "max_turns", "max_turn_tokens", "max_episode_tokens", "error"
]


class RolloutQueryError(AgentTunixError, ValueError):
    """A query of rollouts is invalid; `param` names the part of it."""

    def __init__(self, param: str, message: str, code: str | None = None) -> None:
        super().__init__(message, code=code or f"invalid_{param}")
        self.param = param


@dataclass(frozen=True)
class RolloutQuery:
    """Filter of completions, and their order within a step; steps are always in order.

    Raises:
        RolloutQueryError: A value is not one of the choices, not finite, or too long.
    """

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
        choices = (("sort", self.order, Order), ("outcome", self.outcome, Outcome))
        for param, value, kind in (*choices, ("stop_reason", self.stop_reason, StopReason)):
            if value is not None and value not in get_args(kind):
                raise RolloutQueryError(param, f"{param} must be one of {', '.join(get_args(kind))}")
        for param, text in (("q", self.text), ("tool", self.tool)):
            if len(text) > MAX_TEXT:
                raise RolloutQueryError(param, f"{param} must have at most {MAX_TEXT} characters, not {len(text)}")
        for param, bound in (("min_reward", self.least), ("max_reward", self.most)):
            if bound is not None and not math.isfinite(bound):
                raise RolloutQueryError(param, f"{param} must be a finite number")

    def write_cursor(self, step: int, offset: int) -> str:
        """Return the cursor for the position after `offset` of the matching completions of a step."""
        content = json.dumps([self._digest(), step, offset], separators=(",", ":"))
        return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")

    def read_cursor(self, cursor: str) -> tuple[int, int]:
        """Return the step and the offset of a cursor; raise RolloutQueryError if it is not from this query."""
        try:
            content = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            digest, step, offset = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            digest = step = offset = None
        if digest != self._digest() or not all(type(one) is int and 0 <= one < 2**31 for one in (step, offset)):
            raise RolloutQueryError("after", "after must be the `next` of a page of the same query", "invalid_cursor")
        return step, offset

    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class RolloutPage:
    """Page of completions."""

    rows: list[dict[str, Any]]  # rows with the columns of `SHOWN` or `SHOWN_IN_FULL`; `components` is a list of objects
    next: str | None  # cursor of the next page; None if there is none
    problems: list[str]  # files and completions that were left out


@dataclass(frozen=True)
class SharedPrompt:
    """Prompt that two steps share, with its group in each."""

    prompt: str
    group: int
    other_group: int


class _Scan:
    """Reading for one page of at most `room` bytes, or one completion; it leaves out damaged files."""

    def __init__(self, directory: Path, footers: Footers, room: int = 0) -> None:
        self.reader = RolloutReader(directory, skips_damaged=True, footers=footers)
        self.num_bytes = 0
        self.num_shown = 0
        self.room = room

    def read(self, place: StepPlace, *columns: str) -> "pa.Table":
        """Return columns of a step, and count their bytes."""
        table = place.read(columns)
        self.num_bytes += table.nbytes
        return table

    @property
    def problems(self) -> list[str]:
        """Descriptions of what was left out."""
        return [f"parts of {path.name} cannot be read and are skipped" for path in self.reader.damaged]


class RolloutPages:
    """Pages of the completions in a run's `rollouts/`, which need not exist; thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._footers: Footers = {}

    def span(self) -> tuple[int, int] | None:
        """Return the first and the last stored step; None if there are none."""
        files = list_files(self._directory)
        return (files[0].first, max(file.last for file in files)) if files else None

    def page(
        self,
        query: RolloutQuery,
        limit: int = 20,
        after: str | None = None,
        in_full: bool = False,
        most_bytes: int = _PAGE_BYTES,
    ) -> RolloutPage:
        """Return a page of at most `limit` completions that match a query.

        A page has at most `most_bytes`, or one completion. `after` is the `next` of the previous page, and `in_full`
        selects `SHOWN_IN_FULL`.

        Raises:
            RolloutQueryError: The cursor is not from a page of this query.
        """
        first, offset = (query.step or 0, 0) if after is None else query.read_cursor(after)
        scan = _Scan(self._directory, self._footers, most_bytes)
        rows: list[dict[str, Any]] = []
        places = scan.reader.places(first, query.step)
        for number, place in enumerate(places):
            if number and (number >= _BUDGET_STEPS or scan.num_bytes >= _BUDGET_BYTES or len(rows) >= limit):
                return RolloutPage(rows, query.write_cursor(place.step, 0), scan.problems)
            skipped = offset if place.step == first else 0
            with scan.reader.skipping(place.path):
                matching = _matching(scan, place, query)[skipped:]
                shown = _show(scan, place, matching[: limit - len(rows)], in_full)
                rows += shown
                if len(shown) < len(matching):
                    return RolloutPage(rows, query.write_cursor(place.step, skipped + len(shown)), scan.problems)
        return RolloutPage(rows, None, scan.problems)

    def group(self, step: int, group: int) -> RolloutPage:
        """Return the completions of one prompt of a step in full, in the order in which they were scored."""
        query = RolloutQuery(step=step, group=group)
        page = self.page(query, _MOST_OF_A_GROUP, in_full=True, most_bytes=_GROUP_BYTES)
        if page.next is not None:
            page.problems.append(f"further completions of group {group} of step {step} are left out")
        return page

    def groups(self, step: int) -> list[int]:
        """Return the stored groups of a step, in order."""
        return sorted(set(self._columns(step, "group")[0].get("group", ())))

    def shared_prompts(self, step: int, other: int) -> tuple[list[SharedPrompt], list[str]]:
        """Return the prompts that two steps share, and descriptions of what could not be read."""
        groups: list[dict[str, int]] = []
        problems: list[str] = []
        for number in (step, other):
            columns, of_step = self._columns(number, "prompt", "group")
            pairs = zip(columns.get("prompt", ()), columns.get("group", ()), strict=True)
            groups.append(dict(reversed([*pairs])))  # the first group of a prompt
            problems += [problem for problem in of_step if problem not in problems]
        shared = [
            SharedPrompt(prompt, group, groups[1][prompt])
            for prompt, group in sorted(groups[0].items(), key=lambda pair: pair[1])
            if prompt in groups[1]
        ]
        return shared[:_MOST_SHARED], problems

    def _columns(self, step: int, *names: str) -> tuple[dict[str, list[Any]], list[str]]:
        """Return columns of a step, none if it is not stored, and descriptions of what could not be read."""
        scan = _Scan(self._directory, self._footers)
        columns: dict[str, list[Any]] = {}
        for place in scan.reader.places(step, step):
            with scan.reader.skipping(place.path):
                columns = scan.read(place, *names).to_pydict()
        return columns, scan.problems


def _matching(scan: _Scan, place: StepPlace, query: RolloutQuery) -> NDArray[np.int64]:
    """Return the numbers of the matching rows of a step, in the order of the query."""
    import pyarrow.compute as pc

    key = _KEYS.get(query.order.lstrip("-"))
    needed = {
        "group": query.group is not None,
        "outcome": query.outcome is not None,
        "response": bool(query.text),
        "stop_reason": query.stop_reason is not None,
        "episode": bool(query.tool),
        "total": key == "total" or query.least is not None or query.most is not None,
        "num_tokens": key == "num_tokens",
    }
    columns = [name for name, is_needed in needed.items() if is_needed]
    rows = np.arange(place.num_rows)
    if not columns:
        return rows
    table = scan.read(place, *columns)
    keep = np.ones(len(rows), bool)
    if query.group is not None:
        keep &= table["group"].to_numpy() == query.group
    if query.outcome is not None:
        keep &= pc.equal(table["outcome"], query.outcome).to_numpy()
    if query.text:
        keep &= pc.match_substring(table["response"], query.text, ignore_case=True).to_numpy()
    if query.stop_reason is not None:
        keep &= pc.equal(table["stop_reason"], query.stop_reason).to_numpy()
    if query.tool and "episode" not in table.column_names:
        keep[:] = False
    elif query.tool:
        # As `encode` writes a call. No text inside a JSON string reads so, because its quotes are escaped.
        call = f'"name":{json.dumps(query.tool, ensure_ascii=False)},"outcome":'
        keep &= pc.match_substring(table["episode"].fill_null(""), call).to_numpy()
    if query.least is not None:
        keep &= table["total"].to_numpy().astype(float) >= lowest_reaching(query.least)
    if query.most is not None:
        keep &= table["total"].to_numpy().astype(float) <= highest_within(query.most)
    if key is not None:
        sign = -1.0 if query.order.startswith("-") else 1.0
        rows = np.argsort(sign * table[key].to_numpy().astype(float), kind="stable")  # NaN, without a reward, is last
    return rows[keep[rows]]


def _show(scan: _Scan, place: StepPlace, rows: NDArray[np.int64], in_full: bool) -> list[dict[str, Any]]:
    """Return the shown columns of the first rows, as far as the page has room for them."""
    if not len(rows):
        return []
    columns = SHOWN_IN_FULL if in_full else SHOWN
    if in_full:
        # Messages repeat the prompt, so they are read only if there are conversations to show.
        episodes = scan.read(place, "episode")
        if episodes.column_names and episodes["episode"].take(rows).null_count < len(rows):
            columns += ("episode", "messages", "turn_advantages")
    table = scan.read(place, *columns).take(rows)
    sizes = np.cumsum([table.slice(number, 1).nbytes for number in range(len(rows))])
    count = int((sizes <= scan.room).sum()) or int(not scan.num_shown)
    scan.num_shown += count
    scan.room -= int(sizes[count - 1]) if count else 0
    shown: list[dict[str, Any]] = to_plain(table.slice(0, count).to_pylist())
    names = _COMPONENT_IN_FULL if in_full else _COMPONENT
    for row in shown:
        row["components"] = [{name: component[name] for name in names} for component in row["components"]]
    return shown
