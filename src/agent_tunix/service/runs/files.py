"""Reading of files in a run's directory while others write to it, without following links.

Each directory of a path is opened from its parent and must not be a link. Replacing a directory between a check and an
open therefore cannot lead elsewhere. Paths must come from `Path.resolve`.
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

# Larger integers are not exact as doubles, which browsers and charts use.
_LAST_STEP = 10**15 - 1


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Open a directory for the block and yield its descriptor; raise OSError if its path contains a link."""
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
    """Return the status of a file in an open directory if it is of the given kind, itself no link; else None.

    `directory` is a descriptor; `kind` is a file type of `stat.S_IFMT`.
    """
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return status if stat.S_IFMT(status.st_mode) == kind else None


def plain_status(path: Path, kind: int = stat.S_IFREG) -> os.stat_result | None:
    """Return the status of a file of the given kind whose path contains no link; else None."""
    try:
        with opened_directory(path.parent) as directory:
            return status_in(directory, path.name, kind)
    except (OSError, ValueError):
        return None


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting for a pipe; raise OSError if a link is on its path."""
    with opened_directory(path.parent) as directory:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Return a JSON object with null for numbers that are not finite; None if the line is not an object."""
    try:
        loaded = json.loads(line)
        return finite(loaded) if isinstance(loaded, dict) else None
    except (ValueError, RecursionError):
        return None


def is_step(value: object) -> TypeGuard[int]:
    """Return True if a JSON value can be the step of a row: 0 to 10¹⁵ − 1."""
    return type(value) is int and 0 <= value <= _LAST_STEP


def finite(value: Any) -> Any:
    """Return a JSON value with null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value
