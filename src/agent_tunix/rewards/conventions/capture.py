"""Capture of what a reward logs or prints while it scores.

The output is shown as usual. It is also stored with the completion, in the score's extras under `log`. Concurrent calls
are told apart by their context.
"""

import contextlib
import contextvars
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

LONGEST_LOG = 10_000

_lines: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("lines", default=None)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Listen to the loggers and to standard output while any thread needs it."""
    _LISTENER.start()
    try:
        yield
    finally:
        _LISTENER.stop()


class attributed:  # noqa: N801  a context manager, entered for every completion
    """Context manager that returns a list of everything logged or printed inside, while `listening`."""

    __slots__ = ("_token",)

    def __enter__(self) -> list[str]:
        lines: list[str] = []
        self._token = _lines.set(lines)
        return lines

    def __exit__(self, *_: object) -> None:
        # The garbage collector may close an abandoned call in another context, whose attribution must stay.
        with contextlib.suppress(ValueError):
            _lines.reset(self._token)


def as_extras(lines: list[str]) -> dict[str, Any]:
    """Return captured lines as extras of a score."""
    text = "".join(lines)
    if not text:
        return {}
    return {"log": text if len(text) <= LONGEST_LOG else text[:LONGEST_LOG] + "…"}


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        lines = _lines.get()
        if lines is not None:
            try:
                lines.append(f"{record.levelname} {record.getMessage()}\n")
            except Exception:  # a message may fail to be formatted
                self.handleError(record)


class _Tee:
    """Stream that passes text on and also stores it for the current call."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        lines = _lines.get()
        if lines is not None:
            lines.append(text)
        self.stream.write(text)
        return len(text)

    def close(self) -> None:
        """Do nothing, because a reward must not close standard output."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Listener:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._handler = _Handler()
        self._tee: _Tee | None = None

    def start(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                logging.getLogger().addHandler(self._handler)
                if sys.stdout is not None:
                    self._tee = _Tee(sys.stdout)
                    sys.stdout = self._tee

    def stop(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0:
                logging.getLogger().removeHandler(self._handler)
                if self._tee is not None and sys.stdout is self._tee:
                    sys.stdout = self._tee.stream
                self._tee = None


_LISTENER = _Listener()
