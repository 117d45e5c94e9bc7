"""Rows in memory as files of a run's directory, so that resuming reads them again."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.atomic_files import replacing
from agent_tunix.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

_FORMS = (
    "a path, rows (a list of dicts), a data frame, an Arrow table, a datasets.Dataset, or a mapping from the names of "
    "splits to these"
)


def write_rows(rows: Any, directory: Path, name: str) -> Path:
    """Write rows to `NAME.parquet`, or to `NAME.jsonl` where Parquet would change them, and return the file.

    Args:
        rows: Rows in any form but a path.
        directory: Directory of the file; created if it does not exist.
        name: Name of the split.

    Raises:
        DataError: They are no rows, there are none, or they have values that JSON cannot represent.
    """
    table = _to_table(rows)
    listed: list[dict[str, Any]] = []
    if table is None:
        listed = _to_list(rows)
        table = _exact_table(listed)
    if not (listed if table is None else table.num_rows):
        raise DataError(f"the {name} rows must be at least one, but there are none", code="no_rows")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / (f"{name}.jsonl" if table is None else f"{name}.parquet")
    with replacing(path) as file:
        if table is None:
            file.writelines(_to_line(row, name, number) for number, row in enumerate(listed, 1))
        else:
            import pyarrow.parquet as pq

            pq.write_table(table, file)
    return path


def _to_table(rows: Any) -> "pa.Table | None":
    """Return columnar rows as an Arrow table; None for rows that must be read one by one."""
    import pyarrow as pa

    if hasattr(rows, "with_format") and hasattr(rows, "__getitem__"):  # datasets.Dataset
        rows = rows.with_format("arrow")[:]
    if not hasattr(rows, "__arrow_c_stream__"):
        return None
    table = pa.table(rows)
    # The index of a data frame is no column.
    return table.select([name for name in table.column_names if not name.startswith("__index_level_")])


def _to_list(rows: Any) -> list[dict[str, Any]]:
    listed = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | Mapping) else None
    if listed is None or not all(isinstance(row, Mapping) for row in listed):
        raise DataError(f"data must be {_FORMS}, not {type(rows).__name__}", code="unsupported_data")
    return [dict(row) for row in listed]


def _exact_table(rows: list[dict[str, Any]]) -> "pa.Table | None":
    """Return an Arrow table that holds exactly these rows; None if there is none, as for a column of several types."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    padded = [{name: row.get(name) for name in names} for row in rows]
    try:
        table = pa.Table.from_pydict({name: [row[name] for row in padded] for name in names})
    except (pa.ArrowException, OverflowError, TypeError):
        return None
    return table if table.to_pylist() == padded else None


def _to_line(row: dict[str, Any], name: str, number: int) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise DataError(
            f"row {number} of the {name} rows must have values that JSON or Parquet represent, but: {error}; convert "
            "them",
            code="invalid_row",
        ) from error
