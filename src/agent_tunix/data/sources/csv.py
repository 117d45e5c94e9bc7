"""CSV files with a header; tab-separated if the name ends in `.tsv`.

Every value is text, exactly as in the file: no number, date or null is inferred, and an empty field is "". Rows follow
RFC 4180: quoted fields may contain separators, doubled quotes and line ends. A row is dropped and counted under its
first line if it does not follow RFC 4180, has more or fewer fields than the header, is not UTF-8, or is longer than
`data.max_row_bytes`. If a quote is never closed, or only by the opening quote of another row, just its own line is
lost: reading continues with the next line.
"""

import collections
import contextlib
import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Line:
    number: int
    content: bytes
    # Effect of the line on a quote that an earlier line opened: True if it stays open, False if the record ends, or the
    # error's message. None if not known yet.
    leaves_open: bool | str | None = None


class _OpenQuote(Exception):
    """The lines end within quotes."""


class _Records:
    """The records of a file, each on one or more lines.

    After a fault, all lines of the record but the first are read again. So that each line is parsed only a few times,
    its effect on an open quote is remembered.

    Attributes:
        line: First line of the last record, from 1.
        lines_read: Lines read so far.
    """

    def __init__(self, file: BinaryIO, delimiter: str, limit: int) -> None:
        self.line = 0
        self.lines_read = 0
        csv.field_size_limit(max(csv.field_size_limit(), limit))  # the default would reject a long row that is allowed
        self._limit = limit
        self._lines = read_lines(file, limit)
        self._ahead: collections.deque[_Line] = collections.deque()  # lines that belong to no record yet
        self._open = 0  # number of lines after the first one ahead that are known to leave a quote open
        self._open_size = 0  # their bytes
        self._delimiter = delimiter

    def next(self) -> list[str] | None:
        """Return the fields of the next record; None at the end of the file.

        Raises:
            RowError: The record is not valid. If it is not CSV or is too long, only its first line is skipped.
        """
        if (first := self._line_ahead(0)) is None:
            return None
        self.line = first.number
        try:
            fields = self._read(first)
            "".join(fields).encode()
        except csv.Error as error:
            raise RowError("not CSV", str(error)) from error
        except UnicodeEncodeError as error:
            bad = ord(error.object[error.start]) - 0xDC00
            raise RowError("not UTF-8", f"one of its bytes is 0x{bad:02x}") from error
        finally:
            self._skip_line()
        if fields == []:
            raise RowError("empty line")
        return fields

    def _read(self, first: _Line) -> list[str]:
        """Return the fields of the record that begins with a line, and skip all lines of it but the last."""
        size = len(first.content)
        self._require_size(size, first)
        with contextlib.suppress(_OpenQuote):
            return self._parse([first.content])
        while (line := self._line_ahead(1 + self._open)) is not None:
            self._require_size(size + self._open_size + len(line.content), line)
            if line.leaves_open is None:
                line.leaves_open = self._leaves_open(line)
            if isinstance(line.leaves_open, str):
                raise csv.Error(line.leaves_open)
            if not line.leaves_open:
                lines = [self._skip_line() for _ in range(1 + self._open)]
                return self._parse([*lines, line.content])
            self._open += 1
            self._open_size += len(line.content)
        raise csv.Error("unexpected end of data")

    def _line_ahead(self, index: int) -> _Line | None:
        if index == len(self._ahead) and (numbered := next(self._lines, None)) is not None:
            self._ahead.append(_Line(*numbered))
        return self._ahead[index] if index < len(self._ahead) else None

    def _skip_line(self) -> bytes:
        """Remove and return the first line ahead."""
        line = self._ahead.popleft()
        self.lines_read = line.number
        if self._open:
            self._open -= 1
            self._open_size -= len(self._ahead[0].content)
        return line.content

    def _require_size(self, size: int, last: _Line) -> None:
        if size > self._limit and not (size == self._limit + 1 and last.content.endswith(b"\n")):
            raise RowError(f"longer than data.max_row_bytes={self._limit}")

    def _leaves_open(self, line: _Line) -> bool | str:
        try:
            self._parse([b'"' + line.content])
        except csv.Error as error:
            return str(error)
        except _OpenQuote:
            return True
        return False

    def _parse(self, lines: Iterable[bytes]) -> list[str]:
        """Return the fields of one record; raise _OpenQuote if it needs more lines."""

        def feed() -> Iterator[str]:
            for line in lines:
                yield line.decode("utf-8", errors="surrogateescape")  # a byte that is not UTF-8: a lone surrogate
            raise _OpenQuote

        return next(csv.reader(feed(), delimiter=self._delimiter, strict=True))
