"""SIGINT, SIGTERM and SIGHUP as a request to stop after the current step."""

import contextlib
import os
import signal
import stat
import threading
from types import FrameType, TracebackType

from agent_tunix.startup import interruption

_STOPPING = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """A context that records the first SIGINT, SIGTERM or SIGHUP instead of ending the process.

    A second SIGINT or SIGTERM ends the process at once. In a program (`interruption`), that holds during a compilation
    too. Outside the main thread, where Python allows no signal handlers, the context changes nothing.

    Attributes:
        signal_number: The signal that arrived; None if there was none.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is not threading.main_thread():
            return self
        in_program = interruption.is_active()
        for number in (*_STOPPING, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` leaves it
                handler = interruption.leave_to_thread if in_program else self._handle
                self._before[number] = signal.signal(number, handler)
        if in_program:
            interruption.call_on_first(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        interruption.call_on_first(None)
        self._put_back(tuple(self._before))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._note(number)
        self._put_back(_STOPPING)

    def _note(self, number: int) -> None:
        self.signal_number = number
        if number == signal.SIGHUP:
            _leave_terminal()
        # Python's buffers may be in use when a handler runs, so this bypasses them.
        with contextlib.suppress(OSError):  # a closed terminal or pipe
            os.write(
                2, b"\nstopping after this step, with a checkpoint, or before the first; once more stops at once\n"
            )

    def _put_back(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            if number in self._before:
                signal.signal(number, self._before.pop(number))  # type: ignore[arg-type]


def _leave_terminal() -> None:
    """Discard further output to a terminal that was closed, because writing to it fails."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(nothing, descriptor)
    os.close(nothing)
