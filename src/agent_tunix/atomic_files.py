"""Atomic writing: after an error, a kill or a power cut, a file is either the old one or the new one."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from io import BufferedWriter
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that replaces the one at `path`, and create its directory.

    Raises:
        OSError: The disk is full or the directory cannot be written; the old file remains.
    """
    make_directory(path.parent)
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BufferedWriter]:
    """Yield a new file that replaces `path` when the block ends, and is then on the device.

    After an error or a power cut, only the old file remains.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # what an earlier process left
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


def copy_files(source: Path, target: Path) -> None:
    """Copy the files below a directory, which need not exist, without permissions: a read-only copy could not change.

    Files that another process has not completed are left out.
    """
    for path in source.rglob("*"):
        if path.is_file() and not path.name.endswith(".partial"):
            copy = target / path.relative_to(source)
            make_directory(copy.parent)
            shutil.copyfile(path, copy)


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
