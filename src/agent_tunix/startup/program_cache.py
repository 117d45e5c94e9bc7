"""The cache of compiled programs on disk, which makes the next start fast.

JAX reads and writes the programs (`jax_compilation_cache_dir`). Before JAX is imported, this module adds the parts that
JAX lacks:

- Each kind of processor has its own directory. A program compiled for another kind may end a process with an illegal
  instruction, and different machines may share a home directory.
- JAX's own size limit (`jax_compilation_cache_max_size`) stops caching when one of its bookkeeping files is missing,
  for example after a kill. This module therefore removes the least recently used programs when a run starts.
- A killed process or a full disk leaves part of a program. JAX warns of it at every start and never replaces it. New
  files are checked once, and incomplete ones are removed.
- A directory that cannot be written is still read, and a missing home directory is not an error.

Several runs may use one directory at once. A program that another run has removed is compiled again.
"""

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import tempfile
import zlib
from pathlib import Path

_LOGGER = logging.getLogger("agent_tunix.run")

MAX_BYTES = 1 << 30
# Share of MAX_BYTES that is kept after a removal, so that not every start removes something.
_KEPT_SHARE = 0.8
# With less free space, no program is written, to leave the space to other users of the disk.
_MIN_FREE_BYTES = 256 << 20
# Keep even programs that compile quickly: compiling the smallest takes several times as long as reading it.
_KEEP_ALL = "0"
_KEEP_NONE = "1e9"
_SUFFIX = "-cache"
_BUCKET = "gs://"
_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# The modification time of this file is the time of the last check.
_CHECKED = ".checked"


def prepare_cache(setting: str) -> None:
    """Set the environment variables that tell JAX where to keep compiled programs.

    A variable that the user has set stays.

    Args:
        setting: Directory, `gs://BUCKET/DIRECTORY`, or `auto` for one in the user's cache directory.
    """
    if os.environ.get(_VARIABLE):
        return
    if setting.startswith(_BUCKET):
        _prepare_bucket(setting)
        return
    try:
        directory = cache_directory(setting)
    except RuntimeError as error:  # the user has no home directory
        _LOGGER.warning("compiled programs are not cached: %s; set distributed.compilation_cache=DIR", error)
        return
    problem = _why_not_written(directory)
    if problem is None:
        _remove_least_used(directory)  # first, because the check below reads files, which changes their access times
        _remove_damaged(directory)
    elif not directory.is_dir():
        _LOGGER.warning(
            "compiled programs are not cached: %s; choose another directory with distributed.compilation_cache=DIR, "
            "or disable the cache with distributed.compilation_cache=null",
            problem,
        )
        return
    else:
        _LOGGER.info("compiled programs are read from %s, but none are added: %s", directory, problem)
    os.environ[_VARIABLE] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _KEEP_NONE if problem else _KEEP_ALL)


def _prepare_bucket(setting: str) -> None:
    """Let JAX keep programs in a bucket. It never removes any there, and skips those that compile within a second."""
    if importlib.util.find_spec("gcsfs") is None:
        _LOGGER.warning(
            "compiled programs are not cached: %s requires gcsfs; run `pip install gcsfs`, or choose a directory with "
            "distributed.compilation_cache=DIR",
            setting,
        )
        return
    os.environ[_VARIABLE] = f"{setting.rstrip('/')}/{processor_kind()}"


def cache_directory(setting: str) -> Path:
    """Return the directory of the programs for this kind of processor.

    Args:
        setting: Parent directory, or `auto` for one in the user's cache directory.
    """
    if setting != "auto":
        # The path is part of JAX's cache key, so it must be absolute.
        return Path(setting).expanduser().resolve() / processor_kind()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "agent_tunix" / "jax" / processor_kind()


def _why_not_written(directory: Path) -> str | None:
    """Return the reason why nothing can be written to a directory, or None if it can be written."""
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True)  # the error gives the reason
        with tempfile.TemporaryFile(dir=directory):
            pass
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"{directory} cannot be written ({error.strerror})"
    if free < _MIN_FREE_BYTES:
        return f"the disk of {directory} must have {_MIN_FREE_BYTES >> 20} MB free, but has {free >> 20} MB"
    return None


def _remove_damaged(directory: Path) -> None:
    """Remove incomplete programs among the files that are newer than the last check."""
    marker = directory / _CHECKED
    with contextlib.suppress(OSError):
        since = marker.stat().st_mtime_ns if marker.exists() else 0
        marker.touch()
        for path in directory.glob(f"*{_SUFFIX}"):
            if path.stat().st_mtime_ns >= since and not _is_whole(path.read_bytes()):
                path.unlink(missing_ok=True)


def _is_whole(program: bytes) -> bool:
    """Return True if a file of JAX's is complete; always True for other compressions than zlib."""
    if program and program[0] != 0x78:
        return True
    unpacking = zlib.decompressobj()
    try:
        unpacking.decompress(program)
    except zlib.error:
        return False
    return unpacking.eof


def _remove_least_used(directory: Path) -> None:
    """Remove the least recently used programs if all together exceed `MAX_BYTES`."""
    with contextlib.suppress(OSError):
        found = [(path, path.stat()) for path in directory.glob(f"*{_SUFFIX}")]
        total = sum(status.st_size for _, status in found)
        if total <= MAX_BYTES:
            return
        # Without access times, the oldest files go first.
        for path, status in sorted(found, key=lambda entry: max(entry[1].st_atime_ns, entry[1].st_mtime_ns)):
            path.unlink(missing_ok=True)
            total -= status.st_size
            if total <= MAX_BYTES * _KEPT_SHARE:
                return


def processor_kind() -> str:
    """Return an identifier that is equal for processors with the same instruction set."""
    described = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        # Distinct lines only, because a machine has many cores of one or two kinds.
        described = "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
