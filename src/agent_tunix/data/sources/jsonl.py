"""Files with one JSON object a line.

A line that holds no usable object is dropped and counted, never an exception: not UTF-8, not JSON, not an object,
empty, or longer than `data.max_row_bytes` (which is skipped without being held in memory).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.paths import find_jsonl
from agent_tunix.errors import DataError

UTF8_BOM = b"\xef\xbb\xbf"


def read_jsonl(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """The lines of a file, one JSON object each."""
    path = find_jsonl(config, split)
    dropped.origin = str(path)
    try:
        for number, line in _read_lines(path, config.data.max_row_bytes):
            try:
                yield Row(number, _parse_row(line, config.data.max_row_bytes))
            except RowError as error:
                dropped.add(error.reason, number, error.detail)
    except OSError as error:
        raise DataError(f"the {split} rows cannot be read: {error}; check the path and its permissions") from error


def _read_lines(path: Path, limit: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, from 1; of one longer than `limit` bytes only the first `limit + 1` are kept."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(limit + 1):
            number += 1
            end = line
            while len(end) > limit and not end.endswith(b"\n"):
                end = file.readline(limit + 1)
            yield number, line.removeprefix(UTF8_BOM) if number == 1 else line


def _parse_row(line: bytes, limit: int) -> dict[str, Any]:
    if len(line) > limit and not line.endswith(b"\n"):
        raise RowError(f"longer than data.max_row_bytes={limit}")
    if not line.strip():
        raise RowError("empty line")
    try:
        row = json.loads(line.decode("utf-8"))
        if b"\\u" in line:  # An escape may stand for half a surrogate pair, which is no text.
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError("not UTF-8", f"byte {error.start + 1} is 0x{line[error.start]:02x}") from error
    except UnicodeEncodeError as error:
        raise RowError("not Unicode", "an escape stands for half a surrogate pair") from error
    except json.JSONDecodeError as error:
        raise RowError("not JSON", f"{error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # A number of thousands of digits; brackets nested too deep.
        raise RowError("not JSON", str(error)) from error
    if not isinstance(row, dict):
        raise RowError("not a JSON object", f"it is {type(row).__name__}")
    return row
