"""Files with one JSON object per line.

A line is dropped and counted if it is not UTF-8, not JSON, not an object, empty, or longer than `data.max_row_bytes`
(such a line is not held in memory). A `.json` file that contains an array is refused.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.files import faults_of, open_bytes, read_lines
from agent_tunix.data.sources.paths import find_files, uncompressed
from agent_tunix.errors import DataError


def read_jsonl(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of the split's files, one JSON object per line."""
    files = find_files(config, split, "jsonl")
    before, limit = 0, config.data.max_row_bytes
    for path in files:
        dropped.begin_file(path, before)
        number = 0
        with faults_of(split, path), open_bytes(path) as file:
            may_be_array = uncompressed(path.name).lower().endswith(".json")
            for number, line in read_lines(file, limit):
                if may_be_array and line.strip():
                    _refuse_array(path, line)
                    may_be_array = False
                try:
                    columns = _parse_row(line, limit)
                except RowError as error:
                    dropped.add(error.reason, before + number, error.detail)
                else:
                    yield Row(before + number, columns)
        before += number


def _refuse_array(path: Path, first_line: bytes) -> None:
    """Refuse a `.json` file that contains an array, because each of its lines would be dropped."""
    if first_line.lstrip().startswith(b"["):
        name = uncompressed(path.name)
        raise DataError(
            f"{path} must contain one JSON object per line, but is a JSON array; convert it, for example with jq -c "
            f"'.[]' {name} > {name.rpartition('.')[0]}.jsonl",
            code="invalid_row",
        )


def _parse_row(line: bytes, limit: int) -> dict[str, Any]:
    if len(line) > limit and not line.endswith(b"\n"):
        raise RowError(f"longer than data.max_row_bytes={limit}")
    if not line.strip():
        raise RowError("empty line")
    try:
        row = json.loads(line.decode("utf-8"))
        if b"\\u" in line:  # an escape may stand for a lone surrogate, which is not valid text
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise RowError("not UTF-8", f"byte {error.start + 1} is 0x{line[error.start]:02x}") from error
    except UnicodeEncodeError as error:
        raise RowError("not Unicode", "an escape encodes a lone surrogate") from error
    except json.JSONDecodeError as error:
        raise RowError("not JSON", f"{error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; brackets nested too deep
        raise RowError("not JSON", str(error)) from error
    if not isinstance(row, dict):
        raise RowError("not a JSON object", f"it is {type(row).__name__}")
    return row
