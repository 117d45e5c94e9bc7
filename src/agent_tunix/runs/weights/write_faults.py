"""Explanation of a checkpoint that could not be written: the cause, what a checkpoint takes, and what to do."""

import contextlib
import errno
import os
import re
import shutil
from pathlib import Path

# TensorStore's form of an error of the system.
_CODE = re.compile(r"os_error_code='(\d+)'")
_LONGEST = 200


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
    lines = str(error).strip().splitlines() or ["no details"]
    cause = f"{type(error).__name__}: {lines[0][:_LONGEST]}" if number is None else os.strerror(number)
    space = f"It takes about {num_bytes / 1e6:,.1f} MB"
    with contextlib.suppress(OSError):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        space += f", and {shutil.disk_usage(existing).free / 1e6:,.1f} MB are free there"
    remedy = (
        "raise the limit on open files with `ulimit -n 65536`"
        if number == errno.EMFILE
        else f"free some space, keep fewer checkpoints with training.max_checkpoints_to_keep (now {kept}), or set "
        "training.checkpoint_dir to another disk"
    )
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
