"""Records of a run as data frames, and as HTML for notebooks."""

import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.visible_text import escape_hidden

if TYPE_CHECKING:
    from agent_tunix.tracking.rollouts import RolloutReader
    from agent_tunix.tracking.stored_run import StoredRun

_HEIGHT_PX = 720
# Columns of stored completions that a frame has; `components` becomes a column for each component.
_COLUMNS = (
    *("step", "rollout_id", "prompt", "response", "total", "components", "advantage", "outcome", "detail"),
    *("num_tokens", "ended", "stop_reason", "logprob", "messages", "columns"),
)


def to_frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> Any:
    """Return rows as a data frame of pandas if that is installed, else as an Arrow table.

    Args:
        rows: The rows; a column is null where a row has no such key.
        columns: Names of columns that the frame has even without rows; those of rows come first.
    """
    rows = list(rows)
    names = dict.fromkeys([*(name for row in rows for name in row), *columns])
    values = {name: [row.get(name) for row in rows] for name in names}
    try:
        import pandas
    except ImportError:
        import pyarrow as pa

        return pa.table(values)
    return pandas.DataFrame(values)


def rollouts_frame(reader: "RolloutReader", step: int | None) -> Any:
    """Return the completions of a step, or of all steps; raise RunDirectoryError if the step is not stored."""
    if step is not None:
        reader.read_step(step)
    places = reader.places() if step is None else reader.places(step, step)
    columns = [name for name in (*_COLUMNS, "answer") if name != "components"]
    return to_frame((_to_row(row) for place in places for row in place.read(_COLUMNS).to_pylist()), columns)


def _to_row(row: dict[str, Any]) -> dict[str, Any]:
    components = {f"rewards/{one['name']}": one["value"] for one in row.pop("components")}
    first = {name: row.pop(name) for name in ("step", "rollout_id", "prompt", "response")}
    answer = json.loads(row["columns"]).get("answer")
    return first | {"answer": answer, "total": row.pop("total")} | components | row


class Report:
    """A report on disk, which a notebook shows below the cell.

    Args:
        path: The file `report.html`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Report({str(self.path)!r})"

    def _repr_html_(self) -> str:
        # The page runs only its own script, and the frame gives it nothing of the notebook.
        page = html.escape(self.path.read_text(encoding="utf-8"))
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{page}" style="width:100%;height:{_HEIGHT_PX}px;border:0">'
            "</iframe>"
        )


def summary_html(stored: "StoredRun") -> str:
    """Return a table about a run: its directory, its status, its steps, and its results before and after."""
    from agent_tunix.tracking.outcome import read_outcome
    from agent_tunix.tracking.summary import compare_ends, summary_table

    outcome, rows = read_outcome(stored.root), stored.rows
    status = f"{outcome.status}{f': {outcome.detail}' if outcome.detail else ''}"
    steps = rows[-1]["step"] if rows else 0
    seconds = sum(row.get("time/step_s") or 0.0 for row in rows)
    places = {"run": stored.root, "status": status}
    table = summary_table(*compare_ends(rows), places, num_steps=steps, seconds=seconds)
    return f"<pre>{html.escape(escape_hidden(table))}</pre>"
