"""Writing of new files, and syncing of files to the device."""

import os
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Write a new file; a link in its place is removed, not followed. Raise OSError if the file cannot be written."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


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
