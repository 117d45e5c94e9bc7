"""Safe reading and writing of files in directories that others made: no pipes or devices, and a limited size."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedRandom, BufferedReader, BufferedWriter
from pathlib import Path

_MOST_BYTES = 64 * 2**20
# Errors of `flock` on disks without locks, such as NFS without its lock service, or Lustre mounted without `flock`.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def open_regular(path: Path, *, follow: bool = True) -> BufferedReader:
    """Return a regular file, open for reading.

    Args:
        path: The file, or a link to one.
        follow: Open the target of a link. If False, a link is an error.

    Raises:
        OSError: The file cannot be opened, or is a pipe, a device, a directory or a socket.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def open_lock(path: Path) -> BufferedRandom:
    """Return a file to lock, created if it does not exist; its content is kept.

    Raises:
        OSError: The file cannot be opened, or is a link, a pipe, a device, a directory or a socket.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "r+b")


def has_no_locks(error: OSError) -> bool:
    """Return True if `flock` failed because the disk has no locks, and not because another process holds the lock."""
    return error.errno in _WITHOUT_LOCKS


def read_regular(path: Path, most: int = _MOST_BYTES, *, follow: bool = True) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file, or a link to one.
        most: Maximum size in bytes.
        follow: Read the target of a link. If False, a link is an error.

    Raises:
        OSError: The file cannot be read, is not a regular file, or has more than `most` bytes.
    """
    with open_regular(path, follow=follow) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than the allowed {most:,} bytes", str(path))
    return content


def is_private(path: Path) -> bool:
    """Return True if other users cannot read a file or directory.

    Raises:
        OSError: The path or one of its parents cannot be examined.
    """
    needed = stat.S_IROTH | stat.S_IXOTH if path.is_dir() else stat.S_IROTH
    closed = any(not above.stat().st_mode & stat.S_IXOTH for above in path.parents)
    return closed or path.stat().st_mode & needed != needed


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """Yield a new file that replaces `path` when the block ends, and is then on the device.

    After an error or a power cut, only the old file remains.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # what an earlier process left, or a link that somebody else made
    try:
        with partial.open("xb") as file:
            yield file
        sync(partial)
        os.replace(partial, path)
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, and flush the entries of new ones to the device."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for one in missing:
        sync(one.parent)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Flush every file and directory below a directory to the device."""
    for path in [*directory.rglob("*"), directory]:
        sync(path)
