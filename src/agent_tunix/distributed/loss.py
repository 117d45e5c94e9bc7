"""A process of the run is gone: the others end, with an error that says so and how to go on.

What is left of a run without one of its processes can take no step. How the others come to know:

- on a CPU the collective that waits for the lost process fails, as an exception;
- elsewhere, or while nothing is computed, JAX's coordination service misses its heartbeats for
  `distributed.heartbeat_timeout_s`; where process 0 is lost, in which the service runs, its connections break at once.
  JAX then aborts the process (SIGABRT), and offers no other way: the callback that its client takes cannot be called
  from Python in 0.10.2. So what is to be said is said in a handler of that signal. It is raised by the thread that
  aborts, outside any lock, so that the handler may run Python, which a handler of an asynchronous signal may not;
- a process that fails by an error of its own says so in the store (`group`), and a thread of each process looks there.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

# By which the words of libraries for a partner that is not there are known.
_OF_A_PARTNER = re.compile(r"gloo|nccl|coordination.?service", re.IGNORECASE)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def is_of_a_partner(error: BaseException) -> bool:
    """Whether an exception of a computation, or of the store, comes from a partner that is gone."""
    return isinstance(error, RuntimeError | ValueError) and _OF_A_PARTNER.search(str(error)) is not None


class AbortHandler:
    """Says something, and ends with a status of our own, where JAX would abort the process.

    Attributes:
        text: What is said on standard error; "" for nothing.
        status: What the process ends with.
        tell: Called with the text before the end, for what else is to hear of it; its errors do not matter.
    """

    def __init__(self) -> None:
        self.text = ""
        self.status = 1
        self.tell: Callable[[str], None] = lambda text: None
        self._function = _HANDLER(self._handle)  # kept: C has no reference to it

    def install(self) -> None:
        """Take the signal; Python's own handlers would run too late, in another thread."""
        library = ctypes.CDLL(None)
        library.signal.argtypes = [ctypes.c_int, _HANDLER]
        library.signal.restype = ctypes.c_void_p
        library.signal(signal.SIGABRT, self._function)

    def _handle(self, number: int) -> None:
        end_now(self.text, self.status, self.tell)


def end_now(text: str, status: int, tell: Callable[[str], None] = lambda text: None) -> NoReturn:
    """End the process without waiting for any other, which may be waiting for this one."""
    with contextlib.suppress(Exception):
        tell(text)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    if text:
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())
    os._exit(status)


class FailureWatch:
    """A thread that ends this process where another one has failed and this one does not come to know.

    It waits in a computation, as on a GPU, that the other one will never take part in.

    Args:
        look: Why another process failed; None where none did.
        end: Called with it, to end this process.
        grace_s: How long this process may take to come to know by itself.
    """

    def __init__(self, look: Callable[[], str | None], end: Callable[[str], None], grace_s: float = 15.0) -> None:
        self._look, self._end, self._grace_s = look, end, grace_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="agent_tunix_processes", daemon=True)

    def start(self) -> None:
        """Begin to look, every second."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            try:
                found = self._look()
            except Exception:  # the store is gone, of which the abort tells
                continue
            if found is not None and not self._over.wait(self._grace_s):
                self._end(found)
