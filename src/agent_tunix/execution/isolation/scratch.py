"""The directories of isolated workers: measured while they live, and removed whatever is in them."""

import contextlib
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger("agent_tunix.rewards")

# Deeper than this nobody needs; and deeper still no path has a name.
_DEEPEST = 32


def holds_more(directory: str, size_bytes: int, most_files: int) -> bool:
    """Whether the files in a directory take more, or are more, or lie deeper than any should."""
    size = count = 0
    waiting = [(directory, 0)]
    while waiting:
        path, depth = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(path) as entries:  # it goes on changing
            for entry in entries:
                count += 1
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    size += found.st_blocks * 512
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append((entry.path, depth + 1))
                if size > size_bytes or count > most_files or depth > _DEEPEST:
                    return True
    return False


def remove(directory: str) -> None:
    """Remove a directory that nobody uses any more, however deep and with whatever modes; links are not followed."""
    try:
        _empty(Path(directory))
        os.rmdir(directory)
    except OSError as error:
        logger.warning("%s, which a worker has left, stays: %s", directory, error)


def _empty(top: Path) -> None:
    # Each directory's directories are moved to the top, so that no path grows long.
    number = 0
    directories = _take_files(top, top)
    while directories:
        directory = directories.pop()
        with contextlib.suppress(OSError):  # what is left is told of in the end
            for inner in _take_files(directory, top):
                number += 1
                target = top / f".{number}"
                while target.exists():
                    number += 1
                    target = top / f".{number}"
                os.chmod(inner, 0o700)  # a directory that its owner cannot write to cannot be given another parent
                inner.rename(target)
                directories.append(target)
            directory.rmdir()


def _take_files(directory: Path, top: Path) -> list[Path]:
    """Remove the files of a directory; the directories in it."""
    if directory != top:
        os.chmod(directory, 0o700)
    inner = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
            else:
                with contextlib.suppress(OSError):  # the others are removed all the same
                    os.unlink(entry.path)
    return inner
