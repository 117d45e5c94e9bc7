"""Compiled programs on the disk, which make the next start fast: where they lie, how many, and whether they are whole.

JAX reads and writes them (`jax_compilation_cache_dir`). What it leaves to others is done here, before it is imported:

- Each kind of processor has its own directory: a program for another may end a process with an illegal instruction,
  and a home directory may be shared by machines that differ.
- JAX's own bound on the size (`jax_compilation_cache_max_size`) stops caching where a file of its bookkeeping is
  missing, as after a kill; so the least recently used programs are removed here, when a run starts.
- A process that is killed, or a disk that is full, leaves part of a program, of which JAX warns at every start without
  replacing it. New files are looked through once, and what is not whole is removed.
- A directory that cannot be written is read, and a home that does not exist is no reason to fail.

- The programs are pickles, which run code as they are read. A directory that other users can write to is not used.

Runs may use one directory at once: a program that another run removes is compiled again.
"""

import contextlib
import logging
import os
import shutil
import stat
import tempfile
import zlib
from pathlib import Path

from agent_tunix.startup.processor import processor_kind

_LOGGER = logging.getLogger("agent_tunix.run")

MAX_BYTES = 1 << 30
# What is left where more than that was there, so that not every start has something to remove.
_KEPT_SHARE = 0.8
# Less is left to others, who may need it more.
_MIN_FREE_BYTES = 256 << 20
# Every program, however quickly it was compiled: even the smallest takes several times as long to compile as to read.
_KEEP_ALL = "0"
_KEEP_NONE = "1e9"
_SUFFIX = "-cache"
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# Its time of change is when files were last looked through.
_CHECKED = ".checked"


def prepare_cache(setting: str) -> None:
    """Tell JAX where compiled programs are kept, by its environment variables; one that is set stays.

    Args:
        setting: The directory, or `auto` for one in the user's cache directory.
    """
    if given := os.environ.get(_VARIABLE):
        if Path(given).is_dir() and (problem := why_others_can_write(Path(given))) is not None:
            del os.environ[_VARIABLE]
            _LOGGER.warning("compiled programs are not kept, since they are code: %s; set %s anew", problem, _VARIABLE)
        return
    try:
        directory = cache_directory(setting)
    except RuntimeError as error:  # A user without a home.
        _LOGGER.warning("compiled programs are not kept: %s; set distributed.compilation_cache=DIR", error)
        return
    _make_private(directory)
    if directory.is_dir() and (reason := why_others_can_write(directory)) is not None:
        _LOGGER.warning("compiled programs are not kept, since they are code that others could replace: %s", reason)
        return
    problem = _why_not_written(directory)
    if problem is None:
        _remove_least_used(directory)  # before they are read for another reason
        _remove_damaged(directory)
    elif not directory.is_dir():
        _LOGGER.warning(
            "compiled programs are not kept: %s; choose another directory by distributed.compilation_cache=DIR,"
            " or none by distributed.compilation_cache=null",
            problem,
        )
        return
    else:
        _LOGGER.info("compiled programs are read from %s, and none is added: %s", directory, problem)
    os.environ[_VARIABLE] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _KEEP_NONE if problem else _KEEP_ALL)


def cache_directory(setting: str) -> Path:
    """Where the programs for this processor are kept: `auto`, or the directory that holds one for each kind."""
    if setting != "auto":
        # Its path is part of what JAX finds a program by.
        return Path(setting).expanduser().resolve() / processor_kind()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "agent_tunix" / "jax" / processor_kind()


def why_others_can_write(directory: Path) -> str | None:
    """Return why others could put a program into a directory, where they can.

    Args:
        directory: One that is there.

    Returns:
        The directory, it or one above it, that another user owns or may write to, and what to do; None: there is none.
    """
    inner = Path(os.path.realpath(directory))
    for place in (inner, *inner.parents):
        status = place.stat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to another user (number {status.st_uid}); choose a directory of your own"
        is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a directory such as /tmp nobody may replace what belongs to another.
        if is_shared and (place == inner or not status.st_mode & stat.S_ISVTX):
            return f"other users may write to {place}; run `chmod go-w {place}`, and remove what is not yours there"
    return None


def _make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone, as far as that is possible."""
    with contextlib.suppress(OSError):
        for place in (*reversed(directory.parents), directory):
            if not place.exists():
                place.mkdir(mode=0o700)


def _why_not_written(directory: Path) -> str | None:
    """Why nothing may be written there; None where it may."""
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True)  # which says what hinders it
        with tempfile.TemporaryFile(dir=directory):
            pass
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be written ({error.strerror})"
    if free < _MIN_FREE_BYTES:
        return f"the disk of {directory} has {free >> 20} MB left, and {_MIN_FREE_BYTES >> 20} MB are asked for"
    return None


def _remove_damaged(directory: Path) -> None:
    """Remove what has come since the last time and is not whole."""
    marker = directory / _CHECKED
    with contextlib.suppress(OSError):
        since = marker.stat().st_mtime_ns if marker.exists() else 0
        marker.touch()
        for path in directory.glob(f"*{_SUFFIX}"):
            if path.stat().st_mtime_ns >= since and not _is_whole(path.read_bytes()):
                path.unlink(missing_ok=True)


def _is_whole(program: bytes) -> bool:
    """Whether a file of JAX's can be unpacked; true of one that is packed in another way than zlib's."""
    if program and program[0] != 0x78:
        return True
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(program)
    except zlib.error:
        return False
    return unpacking.eof


def _remove_least_used(directory: Path) -> None:
    """Keep within `MAX_BYTES`."""
    with contextlib.suppress(OSError):
        found = [(path, path.stat()) for path in directory.glob(f"*{_SUFFIX}")]
        total = sum(status.st_size for _, status in found)
        if total <= MAX_BYTES:
            return
        # Where the system does not note when a file was read, the oldest go first.
        for path, status in sorted(found, key=lambda entry: max(entry[1].st_atime_ns, entry[1].st_mtime_ns)):
            path.unlink(missing_ok=True)
            total -= status.st_size
            if total <= MAX_BYTES * _KEPT_SHARE:
                return
