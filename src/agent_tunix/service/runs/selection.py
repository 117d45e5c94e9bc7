"""Selection and order of one step's rollouts, and their display.

Columns are read only if the selection needs them or they are shown.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_tunix.rewards.rounding import highest_within, lowest_reaching
from agent_tunix.service.runs.files import finite
from agent_tunix.service.runs.queries import Position, RolloutQuery
from agent_tunix.tracking.rollouts.files import read_row_group

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SHOWN: tuple[str, ...] = (
    "step",
    "group",
    "rollout_id",
    "prompt",
    "response",
    "outcome",
    "detail",
    "total",
    "advantage",
    "num_tokens",
    "stop_reason",
    "components",
)
# Adds the dataset row, and the extras and logs of rewards, as stored JSON.
SHOWN_IN_FULL = (*SHOWN, "columns", "extras", "logged")
# Conversations of episodes as stored JSON. Runs of older versions have no episodes.
EPISODE_COLUMNS = ("episode", "messages")
_COMPONENT_SHOWN = ("name", "value", "outcome", "detail", "weight", "weighed")
_COMPONENT_IN_FULL = (*_COMPONENT_SHOWN, "gate_shut", "term_detail")
_KEYS = {"reward": "total", "length": "num_tokens"}
_LARGEST_STEP_BYTES = 512 * 2**20
_MOST_ROWS = 10_000_000


@dataclass
class Reading:
    """Record of what was read for a page: opened files, row groups, bytes in memory, bytes shown, and problems."""

    files: int = 0
    row_groups: int = 0
    num_bytes: int = 0
    num_bytes_shown: int = 0
    problems: list[str] = field(default_factory=list)


def read(source: "pq.ParquetFile", place: int, columns: Sequence[str], reading: Reading) -> "pa.Table":
    """Return columns of a row group; raise ValueError if they are larger than one page may read."""
    # Asking for the size of single columns can crash PyArrow if metadata is damaged; the total size is safe.
    size = source.metadata.row_group(place).total_byte_size
    if size > _LARGEST_STEP_BYTES:
        raise ValueError(f"a step has {size:,} bytes")
    table = read_row_group(source, place, columns)
    reading.row_groups += 1
    reading.num_bytes += table.nbytes
    return table


def choose(
    source: "pq.ParquetFile", place: int, query: RolloutQuery, start: Position | None, reading: Reading
) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """Return the numbers of the matching rows in order, and the sort key of every row of the step.

    Raises:
        ValueError: The step is larger than one page may read.
    """
    import pyarrow.compute as pc

    key = _KEYS.get(query.order.lstrip("-"))
    bounded = query.least is not None or query.most is not None
    asked = {
        "group": query.group is not None,
        "outcome": query.outcome is not None,
        "response": bool(query.text),
        "stop_reason": query.stop_reason is not None,
        "episode": bool(query.tool) and has_episodes(source),
    }
    columns = [name for name, wanted in asked.items() if wanted]
    columns += ["total"] if bounded or key == "total" else []
    columns += ["num_tokens"] if key == "num_tokens" else []
    num_rows = source.metadata.row_group(place).num_rows
    if num_rows > _MOST_ROWS:  # a damaged footer
        raise ValueError(f"a step has {num_rows:,} rows")
    keep = np.ones(num_rows, bool)
    keys = np.zeros(num_rows)
    if query.tool and not asked["episode"]:
        keep[:] = False
    if columns:
        table = read(source, place, columns, reading)
        if query.group is not None:
            keep &= table["group"].to_numpy() == query.group
        if query.outcome is not None:
            keep &= pc.equal(table["outcome"], query.outcome).to_numpy()
        if query.text:
            keep &= pc.match_substring(table["response"], query.text, ignore_case=True).to_numpy()
        if query.stop_reason is not None:
            keep &= pc.equal(table["stop_reason"], query.stop_reason).to_numpy()
        if asked["episode"]:
            # As `encode` writes a call. No text inside a JSON string reads so, because its quotes are escaped.
            call = f'"name":{json.dumps(query.tool, ensure_ascii=False)},"outcome":'
            keep &= pc.match_substring(table["episode"].fill_null(""), call).to_numpy()
        totals = table["total"].to_numpy().astype(float) if "total" in columns else None
        if totals is not None and query.least is not None:
            keep &= totals >= lowest_reaching(query.least)
        if totals is not None and query.most is not None:
            keep &= totals <= highest_within(query.most)
        if key is not None:
            keys = table[key].to_numpy().astype(float)
    sign = -1.0 if query.order.startswith("-") else 1.0
    order = np.lexsort((np.arange(num_rows), sign * keys))  # rows without a reward are NaN and come last
    if start is not None:
        order = order[_follows(sign * keys[order], order, None if start.key is None else sign * start.key, start.row)]
    return order[keep[order]], keys


def _follows(
    keys: "np.ndarray[Any, Any]", rows: "np.ndarray[Any, Any]", key: float | None, row: int
) -> "np.ndarray[Any, Any]":
    """Return a mask of the rows that come after the given one in the order."""
    missing = np.isnan(keys)
    if key is None:
        return np.asarray(missing & (rows > row))
    return np.asarray(missing | (keys > key) | ((keys == key) & (rows > row)))


def has_episodes(source: "pq.ParquetFile") -> bool:
    """Return True if a file can hold episodes."""
    return "episode" in source.schema_arrow.names


def show(
    source: "pq.ParquetFile",
    place: int,
    rows: "np.ndarray[Any, Any]",
    in_full: bool,
    reading: Reading,
    most_bytes: int,
) -> tuple[list[dict[str, Any]], int]:
    """Return the shown columns of the first rows, and the number of these rows.

    The page has at most `most_bytes`. A row that is larger by itself is counted but not shown, and is added to the
    problems of `reading`.
    """
    import pyarrow as pa

    if not len(rows):
        return [], 0
    chosen = pa.array(rows)
    columns = SHOWN_IN_FULL if in_full else SHOWN
    if in_full and has_episodes(source):
        # Messages repeat the prompt, so they are read only if there are conversations to show.
        stored = read(source, place, ["episode"], reading)["episode"].take(chosen)
        columns += EPISODE_COLUMNS if stored.null_count < len(rows) else ()
    table = read(source, place, columns, reading).take(chosen)
    sizes = [table.slice(number, 1).nbytes for number in range(len(rows))]
    fitting: list[int] = []
    for number, size in enumerate(sizes):
        if size > most_bytes:
            name = str(table["rollout_id"][number])[:100]
            reading.problems.append(f"{name} is left out: it has {size:,} bytes, and a page at most {most_bytes:,}")
            continue
        if reading.num_bytes_shown + size > most_bytes:
            break
        reading.num_bytes_shown += size
        fitting.append(number)
    else:
        number = len(rows)
    shown: list[dict[str, Any]] = finite(table.take(pa.array(fitting, pa.int64())).to_pylist())
    names = _COMPONENT_IN_FULL if in_full else _COMPONENT_SHOWN
    for row in shown:
        row["components"] = [{name: one[name] for name in names} for one in row["components"]]
    return shown, number
