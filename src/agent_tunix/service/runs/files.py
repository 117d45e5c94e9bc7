"""Reading the files of a run's directory, which others write to at the same time; never through a link.

Every directory on the way from the root of the file system is opened from the one above it and may not be a link, so
that no directory that is replaced between a check and an opening leads anywhere else. Paths are therefore those that
`Path.resolve` gave.
"""

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

# Beyond it, nothing counts exactly that computes with doubles: a browser, a chart.
_LAST_STEP = 10**15 - 1


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Open a directory, on the way to which there is no link, for the time of the block.

    Yields:
        Its descriptor.

    Raises:
        OSError: There is none, or a link is on the way.
    """
    descriptor = os.open("/", _DIRECTORY)
    try:
        for name in path.parts[1:]:
            if name == "..":
                raise OSError(errno.ELOOP, "a path must be resolved", str(path))
            inner = os.open(name, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def status_in(directory: int, name: str, kind: int = stat.S_IFREG) -> os.stat_result | None:
    """Return the status of a file of a directory that is itself of a kind, not a link to one; else None.

    Args:
        directory: The directory's descriptor.
        name: The file's name.
        kind: Of `stat.S_IFMT`.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return status if stat.S_IFMT(status.st_mode) == kind else None


def plain_status(path: Path, kind: int = stat.S_IFREG) -> os.stat_result | None:
    """Return the status of a file that is itself of a kind, with no link on the way to it; else None."""
    try:
        with opened_directory(path.parent) as directory:
            return status_in(directory, path.name, kind)
    except (OSError, ValueError):
        return None


def open_plain(path: Path) -> BinaryIO:
    """A regular file, open for reading; no link on the way is followed, and a pipe is not waited for.

    Raises:
        OSError: There is none, or it cannot be read.
    """
    with opened_directory(path.parent) as directory:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is no regular file")
    return os.fdopen(descriptor, "rb")


def parse_object(line: bytes) -> dict[str, Any] | None:
    """An object of JSON, what is not finite in it null; None where it is none."""
    try:
        loaded = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return finite(loaded) if isinstance(loaded, dict) else None


def is_step(value: object) -> TypeGuard[int]:
    """Whether a value of JSON can be the step of a row: 0 to 10¹⁵ − 1."""
    return type(value) is int and 0 <= value <= _LAST_STEP


def finite(value: Any) -> Any:
    """A value of JSON with null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value
