"""Parquet files, read a few hundred rows at a time.

Values are plain Python: integers, floats, text, bytes, lists, a dict for a struct, `datetime`, `Decimal`, None. Times
are truncated to microseconds, Python's resolution. A 16- or 32-bit float becomes the shortest number that rounds to it:
0.1, not 0.10000000149011612. A row is dropped and counted if its text is not UTF-8, if it has a date out of Python's
range, or if it is longer than `data.max_row_bytes`.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.files import faults_of
from agent_tunix.data.sources.paths import find_files
from agent_tunix.errors import DataError

_ROWS_AT_ONCE = 256
# Bytes read ahead in a column; without this a whole row group would be in memory.
_READ_AHEAD_BYTES = 1 << 20


def read_parquet(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of the split's files.

    Raises:
        DataError: A file is not a complete Parquet file, or is damaged.
    """
    dropped.unit = "row"
    before = 0
    for path in find_files(config, split, "parquet"):
        dropped.begin_file(path, before)
        number = before
        for batch in _read_batches(split, path):
            for first, rows in _rows_of(batch, config.data.max_row_bytes):
                if isinstance(rows, RowError):
                    dropped.add(rows.reason, number + first, rows.detail)
                else:
                    for place, columns in enumerate(rows):
                        yield Row(number + first + place, columns, is_padded=True)
            number += batch.num_rows
        before = number


def _read_batches(split: Split, path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with faults_of(split, path):
        try:
            file = pq.ParquetFile(path, buffer_size=_READ_AHEAD_BYTES, pre_buffer=False)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{path} is an incomplete Parquet file: {error}; write or download it again", code="damaged_data"
            ) from error
        with file:
            schema = _plain_schema(file.schema_arrow)
            names = file.schema_arrow.names
            twice = sorted(name for name, count in Counter(names).items() if count > 1)
            if twice:
                raise DataError(
                    f"the column names of {path} must be unique, but it repeats {', '.join(map(repr, twice))}; "
                    "rename them",
                    code="invalid_row",
                )
            try:
                for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, use_threads=False):
                    yield batch if schema is None else batch.cast(schema, safe=False)
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    f"{path} is damaged: {' '.join(str(error).split())}; write or download it again",
                    code="damaged_data",
                ) from error


def _rows_of(batch: Any, limit: int) -> Iterator[tuple[int, list[dict[str, Any]] | RowError]]:
    """Yield parts of a batch: the number of the first row, from 1, and the rows, or the error of a single row."""
    stretches = [(0, batch.num_rows)]
    while stretches:
        start, end = stretches.pop()
        part = batch.slice(start, end - start)
        rows: list[dict[str, Any]] | RowError
        if part.nbytes > limit:
            rows = RowError(f"longer than data.max_row_bytes={limit}", f"{part.nbytes} bytes")
        else:
            try:
                rows = _shortest(part.schema, part.to_pylist())
            except UnicodeDecodeError as error:
                rows = RowError("not UTF-8", str(error))
            except (ValueError, OverflowError) as error:
                rows = RowError("a value that Python cannot represent", str(error))
        if isinstance(rows, RowError) and end - start > 1:
            middle = (start + end) // 2
            stretches += [(middle, end), (start, middle)]
        else:
            yield start + 1, rows


def _shortest(schema: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with 16- and 32-bit floats in their shortest form; floats in lists and structs are unchanged."""
    from pyarrow import types

    for field in schema:
        if types.is_float16(field.type) or types.is_float32(field.type):
            kind = np.float16 if types.is_float16(field.type) else np.float32
            for row in rows:
                if row[field.name] is not None:
                    row[field.name] = float(str(kind(row[field.name])))
    return rows


def _plain_schema(schema: Any) -> Any:
    """Return the schema with types that Python can represent; None if nothing needs to change.

    Nanosecond times become microseconds at any depth. Dictionary columns are expanded: a slice of a batch carries the
    whole dictionary, which would count towards the size of each row.
    """
    import pyarrow as pa

    fields = [pa.field(field.name, _plain_type(field.type), field.nullable) for field in schema]
    changed = pa.schema(fields)
    return None if changed.types == schema.types else changed


def _plain_type(kind: Any) -> Any:
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type), field.nullable) for field in kind])
    if types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind
