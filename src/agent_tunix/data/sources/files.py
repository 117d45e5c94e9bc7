"""Files as streams of bytes: decompression, bounded lines, and faults as `DataError`."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.paths import COMPRESSIONS
from agent_tunix.errors import DataError

UTF8_BOM = b"\xef\xbb\xbf"


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
            yield cast(BinaryIO, io.BufferedReader(unpacked, buffer_size=1 << 16))


@contextlib.contextmanager
def faults_of(split: Split, path: Path) -> Iterator[None]:
    """Turn an OSError about a file into a DataError.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        yield
    except OSError as error:
        where = "" if str(path) in str(error) else f" {path}:"
        raise DataError(
            f"the {split} rows cannot be read:{where} {error}; check that the file exists and is readable",
            code="damaged_data",
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
