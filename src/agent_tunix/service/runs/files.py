"""Reading the files of a run's directory, which others write to at the same time; never through a link."""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

# Beyond it, nothing counts exactly that computes with doubles: a browser, a chart.
_LAST_STEP = 10**15 - 1


def plain_status(path: Path, kind: int = stat.S_IFREG) -> os.stat_result | None:
    """The status of a file that is itself of a kind, not a link to one; None where there is no such."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return None
    return status if stat.S_IFMT(status.st_mode) == kind else None


def open_plain(path: Path) -> BinaryIO:
    """A regular file, open for reading; a link is not followed, and a pipe is not waited for.

    Raises:
        OSError: There is none, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
