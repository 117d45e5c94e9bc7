"""CSV files with a header; tab-separated if the name ends in `.tsv`.

Every value is text, exactly as in the file: no number, date or null is inferred, and an empty field is "". Rows follow
RFC 4180: quoted fields may contain separators, doubled quotes and line ends. A row is dropped and counted under its
first line if it does not follow RFC 4180, has more or fewer fields than the header, is not UTF-8, or is longer than
`data.max_row_bytes`. If a quote is never closed, or only by the opening quote of another row, just its own line is
lost: reading continues with the next line.
"""

import collections
import csv
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
            records = _Records(file, _delimiter(path), config.data.max_row_bytes)
            header = _read_header(records, path)
            while header:
                try:
                    fields = records.next()
                    if fields is None:
                        break
                    if len(fields) != len(header):
                        raise RowError(f"not the {len(header)} fields of the header", f"it has {len(fields)}")
                except RowError as error:
                    dropped.add(error.reason, before + records.line, error.detail)
                else:
                    yield Row(before + records.line, dict(zip(header, fields, strict=True)))
        before += records.lines_read


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]] else ","


def _read_header(records: "_Records", path: Path) -> list[str]:
    """Return the column names; an empty list for an empty file. Raise DataError if the first row is not a header."""
    try:
        header = records.next()
    except RowError as error:
        raise DataError(
            f"{path} must begin with a header, but its first row is not one: {error.reason} {error.detail}".rstrip(),
            code="invalid_header",
        ) from error
    if header is None:
        return []
    twice = sorted(name for name, times in collections.Counter(header).items() if times > 1)
    if twice:
        raise DataError(
            f"the column names of {path} must be unique, but its header repeats {', '.join(map(repr, twice))}; "
            "rename them",
            code="duplicate_column",
        )
    return header


class _Records:
    """The records of a file, each on one or more lines.

    Attributes:
        line: First line of the last record, from 1.
        lines_read: Lines read so far.
    """

    def __init__(self, file: BinaryIO, delimiter: str, limit: int) -> None:
        self.line = 0
        self.lines_read = 0
        csv.field_size_limit(max(csv.field_size_limit(), limit))  # the default would reject a long row that is allowed
        self._limit = limit
        self._size = 0
        self._lines = read_lines(file, limit)
        self._again: collections.deque[tuple[int, bytes]] = collections.deque()  # lines to parse again
        self._held: list[tuple[int, bytes]] = []  # lines of this record: at most `limit` bytes and one line
        self._delimiter = delimiter
        self._begin()

    def _begin(self) -> None:
        """Start a parser at the next line; after a fault, at the second line of the faulty record."""
        again, self._held = self._held[1:], []
        if again:
            self._again.extendleft(reversed(again))
            self.lines_read = self.line
        self._reader = csv.reader(self._feed(), delimiter=self._delimiter, strict=True)

    def next(self) -> list[str] | None:
        """Return the fields of the next record; None at the end of the file.

        Raises:
            RowError: The record is not valid. If it is not CSV or is too long, only its first line is skipped.
        """
        self.line, self._size, self._held = self.lines_read + 1, 0, []
        try:
            fields = next(self._reader, None)
            if fields is not None:
                "".join(fields).encode()
        except (csv.Error, RowError) as error:
            self._begin()
            if isinstance(error, RowError):
                raise
            raise RowError("not CSV", str(error)) from error
        except UnicodeEncodeError as error:
            bad = ord(error.object[error.start]) - 0xDC00
            raise RowError("not UTF-8", f"one of its bytes is 0x{bad:02x}") from error
        if fields == []:
            raise RowError("empty line")
        return fields

    def _feed(self) -> Iterator[str]:
        """Yield lines as text; a byte that is not UTF-8 becomes a lone surrogate."""
        while (numbered := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            number, line = numbered
            self.lines_read = number
            self._held.append((number, line))
            self._size += len(line)
            if self._size > self._limit and not (self._size == self._limit + 1 and line.endswith(b"\n")):
                raise RowError(f"longer than data.max_row_bytes={self._limit}")
            yield line.decode("utf-8", errors="surrogateescape")
