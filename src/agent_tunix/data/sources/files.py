"""Files as streams of bytes: compressed ones unpacked on the way, long lines not held, faults as `DataError`."""

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
    """A file's content; of one named `.gz`, `.zst` or `.bz2`, what was compressed.

    Raises:
        OSError: It cannot be opened, or, while it is read, what was compressed is damaged or cut off.
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
    """Turn what the system says of a file into a DataError.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        yield
    except OSError as error:
        said = str(error)
        where = "" if str(path) in said else f" {path}:"
        raise DataError(
            f"the {split} rows cannot be read:{where} {said}; check the file and its permissions",
            code="unreadable_file",
        ) from error


def read_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, from 1; of one longer than `limit` bytes only the first `limit + 1` are kept."""
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        end = line
        while len(end) > limit and not end.endswith(b"\n"):
            end = file.readline(limit + 1)
        yield number, line.removeprefix(UTF8_BOM) if number == 1 else line
