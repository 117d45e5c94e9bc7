"""CSV files with a header; tab-separated ones where the name ends in `.tsv`.

Every value is text, as it stands in the file: nothing becomes a number, a date or a null, and an empty field is "".
Rows follow RFC 4180: quoted fields may hold separators, doubled quotes and line ends. A row that does not, that has
more or fewer fields than the header, is not UTF-8, or is longer than `data.max_row_bytes` is dropped and counted under
the line on which it begins. A quote that is never closed, or only where another row opens one, costs the line on which
it stands: reading goes on at the next one.
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
    """The rows of the split's files, by the columns of each one's header."""
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
                        raise RowError(f"not {len(header)} fields, as the header has", f"it has {len(fields)}")
                except RowError as error:
                    dropped.add(error.reason, before + records.line, error.detail)
                else:
                    yield Row(before + records.line, dict(zip(header, fields, strict=True)))
        before += records.lines_read


def _delimiter(path: Path) -> str:
    return "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]] else ","


def _read_header(records: "_Records", path: Path) -> list[str]:
    """Names of the columns; none of an empty file.

    Raises:
        DataError: The first row cannot be one.
    """
    try:
        header = records.next()
    except RowError as error:
        raise DataError(
            f"{path} should begin with a header, but its first row is none: {error.reason} {error.detail}".rstrip(),
            code="invalid_header",
        ) from error
    if header is None:
        return []
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(
            f"the header of {path} has several columns named {', '.join(map(repr, twice))}; give each its own name",
            code="duplicate_column",
        )
    return header


class _Records:
    """The records of a file, each read from one or more of its lines.

    Attributes:
        line: The line on which the last record begins, from 1.
        lines_read: Lines read so far.
    """

    def __init__(self, file: BinaryIO, delimiter: str, limit: int) -> None:
        self.line = 0
        self.lines_read = 0
        csv.field_size_limit(max(csv.field_size_limit(), limit))  # its own would end a long row that is allowed
        self._limit = limit
        self._size = 0
        self._lines = read_lines(file, limit)
        self._again: collections.deque[tuple[int, bytes]] = collections.deque()  # lines to be parsed once more
        self._held: list[tuple[int, bytes]] = []  # the lines of this record; no more than `limit` bytes and a line
        self._delimiter = delimiter
        self._begin()

    def _begin(self) -> None:
        """Parse from the next line on; after a fault, from the one that follows the first of the faulty record."""
        again, self._held = self._held[1:], []
        if again:
            self._again.extendleft(reversed(again))
            self.lines_read = self.line
        self._reader = csv.reader(self._feed(), delimiter=self._delimiter, strict=True)

    def next(self) -> list[str] | None:
        """The fields of the next record; None at the end of the file.

        Raises:
            RowError: It is no record. Of one that is no CSV or is too long, only the first line is passed over.
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
        """Lines as text, in which a byte that is not UTF-8 is half a surrogate pair."""
        while (numbered := self._again.popleft() if self._again else next(self._lines, None)) is not None:
            number, line = numbered
            self.lines_read = number
            self._held.append((number, line))
            self._size += len(line)
            if self._size > self._limit and not (self._size == self._limit + 1 and line.endswith(b"\n")):
                raise RowError(f"longer than data.max_row_bytes={self._limit}")
            yield line.decode("utf-8", errors="surrogateescape")
