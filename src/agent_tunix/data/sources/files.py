"""Files as streams of bytes: decompression, bounded lines, and faults as `DataError`."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.paths import COMPRESSIONS
from agent_tunix.errors import DataError

UTF8_BOM = b"\xef\xbb\xbf"
# Limit on the bytes of a decompressed file: the first number, or this multiple of its size if that is more.
_LEAST_LIMIT = 2**26
_MOST_GROWTH = 100


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; one named `.gz`, `.zst` or `.bz2` is decompressed.

    Raises:
        OSError: The file cannot be opened, or its compressed data turns out damaged or truncated while it is read.
    """
    with path.open("rb") as file:
        if not path.name.lower().endswith(COMPRESSIONS):
            yield file
            return
        import pyarrow as pa

        codec = pa.Codec.detect(path.name.lower()).name
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as unpacked:
            limited = _Unpacked(unpacked, most_unpacked(path))
            yield cast(BinaryIO, io.BufferedReader(limited, buffer_size=1 << 16))


def most_unpacked(path: Path) -> int:
    """Return the limit on the bytes of a compressed file after decompression."""
    return max(_LEAST_LIMIT, _MOST_GROWTH * path.stat().st_size)


class _Unpacked(io.RawIOBase):
    """Unpacked data of a file, up to a number of bytes: a small file may hold a loop of years."""

    def __init__(self, data: Any, most: int) -> None:
        self._data = data
        self._most = most
        self._read = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        data = self._data.read(len(buffer))
        buffer[: len(data)] = data
        self._read += len(data)
        if self._read > self._most:
            raise OSError(f"its compressed data must have at most {self._most:,} bytes; unpack the file first")
        return len(data)


@contextlib.contextmanager
def faults_of(split: Split, path: Path) -> Iterator[None]:
    """Turn an OSError about a file into a DataError.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        yield
    except OSError as error:
        said = str(error)
        where = "" if str(path) in said else f" {path}:"
        raise DataError(
            f"the {split} rows cannot be read:{where} {said}; check that the file exists and is readable",
            code="unreadable_file",
        ) from error


def read_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers, from 1; a line longer than `limit` bytes is cut to `limit + 1`."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        end = line
        while len(end) > limit and not end.endswith(b"\n"):
            end = file.readline(limit + 1)
        yield number, line.removeprefix(UTF8_BOM) if number == 1 else line
