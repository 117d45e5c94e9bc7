"""Explanation of a checkpoint that could not be written: the cause, what a checkpoint takes, and what to do.

Orbax and TensorStore describe such an error in their own words, and print tracebacks of their threads beside it.
"""

import contextlib
import errno
import logging
import os
import re
import resource
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# TensorStore's form of an error of the system.
_CODE = re.compile(r"os_error_code='(\d+)'")
_LONGEST = 200

_KEEP_FEWER = (
    "free some space, keep fewer checkpoints with training.max_checkpoints_to_keep (now {kept}), or set "
    "training.checkpoint_dir to another disk"
)
_REMEDIES = {
    errno.ENOSPC: _KEEP_FEWER,
    errno.EDQUOT: _KEEP_FEWER,
    errno.EFBIG: "raise the limit on the size of a file (`ulimit -f`), or set training.checkpoint_dir to another disk",
    errno.EMFILE: "raise the limit on open files, now {files}, with `ulimit -n 65536`",
    errno.ENFILE: "raise the limit of the system on open files, fs.file-max",
    errno.EROFS: "set training.checkpoint_dir to a disk that can be written",
    errno.EACCES: "correct the permissions, or set training.checkpoint_dir to another directory",
    errno.EIO: "check the disk, or set training.checkpoint_dir to another one",
    errno.EINVAL: "the disk may not support fsync; set training.checkpoint_dir to one that does",
    errno.ENOSYS: "the disk may not support fsync; set training.checkpoint_dir to one that does",
    errno.ENOTSUP: "the disk may not support fsync; set training.checkpoint_dir to one that does",
}
_OTHER = "correct that, or set training.checkpoint_dir to another disk"


def explain(error: BaseException, step: int, directory: Path, num_bytes: int, kept: int) -> str:
    """Return the cause of an error, the space that a checkpoint takes and that is free, and the remedy.

    Args:
        error: Error of Orbax, TensorStore or the system.
        step: Step of the checkpoint.
        directory: Directory of the checkpoints.
        num_bytes: Size of the arrays of the checkpoint.
        kept: Number of checkpoints that are kept.
    """
    number = _error_number(error)
    cause = _first_words(error) if number is None else os.strerror(number)
    space = f"It takes about {_in_mb(num_bytes)}"
    with contextlib.suppress(OSError):
        space += f", and {_in_mb(shutil.disk_usage(_existing(directory)).free)} are free there"
    remedy = _REMEDIES.get(number or 0, _OTHER).format(kept=kept, files=resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return f"{cause}: the checkpoint of step {step} cannot be written to {directory}. {space}; {remedy}"


def _error_number(error: BaseException | None) -> int | None:
    """Return the number of the system's error that caused another error; None if there is none."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if (found := _CODE.search(str(error))) is not None:
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


def _first_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["no details"]
    return f"{type(error).__name__}: {lines[0][:_LONGEST]}"


def _in_mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"


def _existing(directory: Path) -> Path:
    return next(path for path in (directory, *directory.parents) if path.exists())


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """Suppress what the libraries' threads print about an error, because the same error is raised in this thread.

    After an error their threads may go on for a while, so this lasts until the program ends.
    """
    # asyncio tells of each write whose error nobody read, when its future is collected.
    loggers, hook = [logging.getLogger(name) for name in ("absl", "asyncio")], sys.unraisablehook

    def filtered(unraisable: Any) -> None:
        # Callbacks for an event loop that is closed, and the loop's own end if it could not be opened.
        if not isinstance(unraisable.exc_value, RuntimeError | AttributeError):
            hook(unraisable)

    for logger in loggers:
        logger.addFilter(_has_no_traceback)
    sys.unraisablehook = filtered
    try:
        yield
    except BaseException:
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        raise
    for logger in loggers:
        logger.removeFilter(_has_no_traceback)
    sys.unraisablehook = hook


def _has_no_traceback(record: logging.LogRecord) -> bool:
    return record.exc_info is None
