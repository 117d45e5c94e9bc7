"""CSV files with a header; tab-separated if the name ends in `.tsv`.

Every value is text, exactly as in the file: no number, date or null is inferred, and an empty field is "". The standard
library reads the rows, strictly. A row is dropped and counted under its first line if it is not CSV, has more or fewer
fields than the header, is not UTF-8, or is longer than `data.max_row_bytes`. A quote that is never closed takes the
lines up to the next quote with it.
"""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped, RowError
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.files import faults_of, open_bytes, read_lines
from agent_tunix.data.sources.paths import find_files
from agent_tunix.errors import DataError


def read_csv(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of the split's files; each file has its own header."""
    before = 0
    for path in find_files(config, split, "csv"):
        dropped.begin_file(path, before)
        with faults_of(split, path), open_bytes(path) as file:
            lines = _Lines(file, config.data.max_row_bytes)
            records = csv.reader(lines, delimiter=_delimiter(path), strict=True)
            header = _read_header(lines, records, path)
            while header:
                try:
                    fields = lines.read_record(records)
                    if fields is None:
                        break
                    if len(fields) != len(header):
                        raise RowError(f"not the {len(header)} fields of the header", f"it has {len(fields)}")
                except RowError as error:
                    dropped.add(error.reason, before + lines.first, error.detail)
                else:
                    yield Row(before + lines.first, dict(zip(header, fields, strict=True)))
        before += lines.number


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]] else ","


def _read_header(lines: "_Lines", records: Iterator[list[str]], path: Path) -> list[str]:
    """Return the column names; an empty list for an empty file. Raise DataError if the first row is not a header."""
    try:
        header = lines.read_record(records) or []
    except RowError as error:
        raise DataError(
            f"{path} must begin with a header, but its first row is not one: {error.reason} {error.detail}".rstrip(),
            code="invalid_header",
        ) from error
    if twice := sorted(name for name, times in Counter(header).items() if times > 1):
        raise DataError(
            f"the column names of {path} must be unique, but its header repeats {', '.join(map(repr, twice))}; "
            "rename them",
            code="invalid_header",
        )
    return header


class _Lines:
    """The lines of a file as text, for `csv.reader`, which reads on after an error.

    Attributes:
        number: Number of the last line, from 1; 0 before the first.
        first: Number of the first line of the current record.
    """

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self.number = self.first = 0
        self._lines = read_lines(file, limit)
        self._limit = limit
        self._size = 0  # bytes of the record so far
        csv.field_size_limit(max(csv.field_size_limit(), limit))  # the default would reject a long row that is allowed

    def read_record(self, records: Iterator[list[str]]) -> list[str] | None:
        """Return the fields of the next record; None at the end of the file.

        Raises:
            RowError: The record is not valid.
        """
        self.first, self._size = self.number + 1, 0
        try:
            fields = next(records, None)
        except csv.Error as error:
            raise RowError("not CSV", str(error)) from error
        if fields == []:
            raise RowError("empty line")
        return fields

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        self._size += len(line)
        if self._size > self._limit and not (self._size == self._limit + 1 and line.endswith(b"\n")):
            raise RowError(f"longer than data.max_row_bytes={self._limit}")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RowError("not UTF-8", f"one of its bytes is 0x{line[error.start]:02x}") from error
