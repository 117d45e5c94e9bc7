"""Reading of files, and their permissions."""

import stat
from pathlib import Path


def read_regular(path: Path, most: int = 0) -> bytes:
    """Return the content of a file."""
    return path.read_bytes()


def is_private(path: Path) -> bool:
    """Return True if other users cannot read a file or directory.

    Raises:
        OSError: The path or one of its parents cannot be examined.
    """
    needed = stat.S_IROTH | stat.S_IXOTH if path.is_dir() else stat.S_IROTH
    closed = any(not above.stat().st_mode & stat.S_IXOTH for above in path.parents)
    return closed or path.stat().st_mode & needed != needed
