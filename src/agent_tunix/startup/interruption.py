"""Ctrl-C that ends a program at once, also while it imports modules, compiles, or waits for a device.

Python calls the handler of a signal in the main thread, between two instructions. An import that catches
KeyboardInterrupt hides it, and a compilation is a single instruction that may take minutes. So another thread reacts to
signals here: Python writes the number of each signal to a pipe as soon as it arrives.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it

_text = ""
_request: Callable[[int], None] | None = None
_pipe: int | None = None  # end for writing


def leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing, because the thread reacts to it."""


@contextlib.contextmanager
def ends_at_once(text: str) -> Iterator[None]:
    """End this process at once on Ctrl-C in the block, with a text on standard error.

    Outside the main thread, where Python allows no signal handlers, this changes nothing.
    """
    global _text
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pipe, text_before, _text = signal.set_wakeup_fd(_start(), warn_on_full_buffer=False), _text, text
    handler = signal.signal(signal.SIGINT, leave_to_thread)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(pipe)
        _text = text_before


def is_active() -> bool:
    """Return True if the thread reacts to Ctrl-C."""
    return signal.getsignal(signal.SIGINT) is leave_to_thread


def call_on_first(request: Callable[[int], None] | None) -> None:
    """Have the thread call a function with the number of the next signal, in place of ending the process."""
    global _request
    _request = request


def _start() -> int:
    """Return the pipe for the numbers of signals, which a thread reads."""
    global _pipe
    if _pipe is None:
        reading, _pipe = os.pipe()
        os.set_blocking(_pipe, False)
        threading.Thread(target=_attend, args=(reading,), name="signals", daemon=True).start()
        os.register_at_fork(after_in_child=_leave_to_parent)
    return _pipe


def _leave_to_parent() -> None:
    """Give a fork of this process, such as a worker of `multiprocessing`, reactions to signals of its own.

    It has no thread that reacts, and what it writes to the pipe would count as a second Ctrl-C in this process. If this
    process goes on after the first Ctrl-C, which a terminal sends to both, the fork does too.
    """
    if (other := signal.set_wakeup_fd(-1)) not in (-1, _pipe):
        signal.set_wakeup_fd(other)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is leave_to_thread:
            passes = _request is not None and number != signal.SIGTERM  # which ends a pool of processes
            signal.signal(number, _let_pass if passes else signal.SIG_DFL)


def _let_pass(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)


def _attend(reading: int) -> None:
    while True:
        for number in os.read(reading, 64):
            if signal.getsignal(number) is leave_to_thread:
                _react(number)


def _react(number: int) -> None:
    global _request
    request, _request = _request, None
    if request is not None:
        request(number)
    elif number != signal.SIGHUP:  # a terminal that closes may send it twice
        _end(number)


def _end(number: int) -> NoReturn:
    text = f"{_SHOW_CURSOR if os.isatty(2) else ''}\n{_text}\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(128 + number)
