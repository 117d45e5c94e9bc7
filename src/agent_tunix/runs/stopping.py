"""SIGINT and SIGTERM as a request to stop after the current step."""

import os
import signal
import threading
from types import FrameType, TracebackType


class StopRequest:
    """A context that records the first SIGINT or SIGTERM instead of ending the process.

    The first signal restores the earlier handlers, so a second one ends the process at once. Outside the main thread,
    where Python allows no signal handlers, the context changes nothing.

    Attributes:
        signal_number: The signal that arrived; None if there was none.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._put_back()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_number = number
        self._put_back()
        # Python's buffers may be in use when a handler runs, so this bypasses them.
        os.write(2, b"\nstopping after this step, with a checkpoint, or before the first; once more stops at once\n")

    def _put_back(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]
