"""One-line description of a fault in a user's code that points at the user's own file."""

import asyncio
import traceback
from pathlib import Path

_LONGEST_MESSAGE = 500


def describe_fault(error: BaseException, file: str | None = None) -> str:
    """Return the error and its place: `ZeroDivisionError: division by zero (rewards.py:12: return 1 / 0)`.

    The place is the innermost frame in the user's `file`, or else the innermost frame of all.
    """
    text = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    if isinstance(error, SyntaxError) and error.filename:
        return f"{text} ({error.filename}:{error.lineno}: {(error.text or '').strip()})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_plumbing(frame.filename)]
    own = [frame for frame in frames if frame.filename == file] or frames
    if not own:
        return text
    return f"{text} ({own[-1].filename}:{own[-1].lineno}: {own[-1].line})"


def _message(error: BaseException) -> str:
    try:
        message = str(error.msg if isinstance(error, SyntaxError) else error)
    except (Exception, SystemExit, GeneratorExit) as fault:  # `__str__` of a user's exception class may fail
        return f"(its message could not be read: {type(fault).__name__})"
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"


def _is_plumbing(filename: str) -> bool:
    """Return True if a frame belongs to Python's import machinery or to a module that calls users' code."""
    return filename.startswith(_PLUMBING) or filename == __file__


_HERE = Path(__file__).parent
_PLUMBING = (
    "<frozen importlib",
    str(_HERE / "loading.py"),
    str(_HERE / "conventions"),
    str(Path(asyncio.__file__).parent),
)
