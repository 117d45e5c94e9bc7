"""Files of directories that others made: no pipe is waited for, no device is read, and nothing is read without end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_MOST_BYTES = 64 * 2**20


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, or what a link to one leads to, open for reading.

    Raises:
        OSError: It cannot be opened, or is a pipe, a device, a directory or a socket.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_regular(path: Path, most: int = _MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: It cannot be read, is of another kind, or has more than `most` bytes.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than the {most:,} bytes that are read", str(path))
    return content
