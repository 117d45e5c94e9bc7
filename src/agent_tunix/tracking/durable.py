"""Files that are written anew, and what is on the device, past the operating system's own buffers."""

import os
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Write a file anew; a link that lies in its place is removed, not followed.

    Raises:
        OSError: It cannot be written.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


def sync(path: Path) -> None:
    """Return when the device has a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Return when the device has every file and every name below a directory."""
    for path in [*directory.rglob("*"), directory]:
        sync(path)
