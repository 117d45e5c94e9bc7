"""SIGINT and SIGTERM as a request to stop after the step that is running."""

import os
import signal
import threading
from types import FrameType, TracebackType


class StopRequest:
    """A context in which the first SIGINT or SIGTERM is noted instead of ending the process.

    A second one ends it at once, as if nobody had been listening. Outside the main thread, where Python allows no
    signal handlers, the context changes nothing.

    Attributes:
        signal_number: The signal that arrived; None while there was none.
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
        # Written past Python's buffers, which a handler may find in use.
        os.write(2, b"\nstopping after this step, with a checkpoint, or before the first; once more stops at once\n")

    def _put_back(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)  # type: ignore[arg-type]
