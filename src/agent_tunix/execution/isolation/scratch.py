"""Working directories of isolated workers: measured during use, and removed whatever they contain."""

import contextlib
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger("agent_tunix.rewards")

# Deepest allowed nesting. Far deeper, a path becomes too long for the system.
_DEEPEST = 32
# The worker has removed or replaced it meanwhile.
_CHANGED = (FileNotFoundError, NotADirectoryError)


def holds_more(directory: str, size_bytes: int, most_files: int) -> bool:
    """Return True if the files in a directory exceed a total size, a number or the allowed depth, or are hidden."""
    size = count = 0
    waiting = [(directory, 0)]
    try:
        while waiting:
            path, depth = waiting.pop()
            with contextlib.suppress(*_CHANGED), os.scandir(path) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(*_CHANGED):
                        found = entry.stat(follow_symlinks=False)
                        size += found.st_blocks * 512
                        if stat.S_ISDIR(found.st_mode):
                            waiting.append((entry.path, depth + 1))
                    if size > size_bytes or count > most_files or depth > _DEEPEST:
                        return True
    except OSError:  # such as a directory that only its worker may enter
        return True
    return False


def remove(directory: str) -> None:
    """Remove a directory that is no longer used, of any depth and with any modes; links are not followed."""
    try:
        _empty(Path(directory))
        os.rmdir(directory)
    except OSError as error:
        logger.warning("%s, left behind by a worker, could not be removed: %s", directory, error)


def _empty(top: Path) -> None:
    # Subdirectories are moved to the top, so that no path grows too long.
    number = 0
    directories = _take_files(top, top)
    while directories:
        directory = directories.pop()
        with contextlib.suppress(OSError):  # `remove` logs what is left
            for inner in _take_files(directory, top):
                number += 1
                target = top / f".{number}"
                while target.exists():
                    number += 1
                    target = top / f".{number}"
                os.chmod(inner, 0o700)  # moving a directory requires write access to it
                inner.rename(target)
                directories.append(target)
            directory.rmdir()


def _take_files(directory: Path, top: Path) -> list[Path]:
    """Remove the files of a directory, and return its subdirectories."""
    if directory != top:
        os.chmod(directory, 0o700)
    inner = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
            else:
                with contextlib.suppress(OSError):  # continue with the other files
                    os.unlink(entry.path)
    return inner
