"""Loss of a process: the other processes end with an error that names the loss and says how to resume.

A run cannot take a step without one of its processes. The others detect a loss in three ways:

- On a CPU, the collective that waits for the lost process raises an exception.
- Elsewhere, or while nothing is computed, JAX's coordination service misses the heartbeats of the lost process for
  `distributed.heartbeat_timeout_s`. The service runs in process 0; if that is lost, its connections break at once. JAX
  then aborts each other process (SIGABRT) and offers no alternative: in JAX 0.10.2 the callback of its client cannot be
  called from Python. So a handler of SIGABRT prints the error. The aborting thread raises this signal itself, outside
  any lock, so the handler may run Python. A handler of an asynchronous signal may not.
- A process that fails with an error of its own writes it to the store (`group.py`). A thread of each process checks the
  store.
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

# Matches the libraries' error messages about a missing partner.
_OF_A_PARTNER = re.compile(r"gloo|nccl|coordination.?service", re.IGNORECASE)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


def is_of_a_partner(error: BaseException) -> bool:
    """Return True if an exception of a computation or of the store comes from the loss of another process."""
    return isinstance(error, RuntimeError | ValueError) and _OF_A_PARTNER.search(str(error)) is not None


class AbortHandler:
    """A handler of SIGABRT that prints an error and ends the process with a chosen status.

    Attributes:
        text: Text for standard error; "" for none.
        tell: Called with the text before the process ends, to report the error elsewhere. Its errors are ignored. If it
            returns True, it has shown the text, and standard error does not get it again.
    """

    def __init__(self) -> None:
        self.text = ""
        self.status = 1
        self.tell: Callable[[str], bool | None] = lambda text: None
        self._function = _HANDLER(self._handle)  # C holds no reference to it, so this object must

    def install(self) -> None:
        """Install the handler in C, because Python's own handlers run too late and in another thread."""
        library = ctypes.CDLL(None)
        library.signal.argtypes = [ctypes.c_int, _HANDLER]
        library.signal.restype = ctypes.c_void_p
        library.signal(signal.SIGABRT, self._function)

    def _handle(self, number: int) -> None:
        end_now(self.text, self.status, self.tell)


def end_now(text: str, status: int, tell: Callable[[str], bool | None] = lambda text: None) -> NoReturn:
    """Print an error and end the process, without waiting for other processes, which may wait for this one."""
    is_told: bool | None = False
    with contextlib.suppress(Exception):
        is_told = tell(text)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    if text and not is_told:
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())
    os._exit(status)


class FailureWatch:
    """A thread that ends this process after another process failed.

    It is needed because this process may wait forever, for example on a GPU, in a computation that the failed process
    never joins.

    Args:
        look: Returns the failure of another process; None if there is none.
        end: Called with the failure, to end this process.
        grace_s: Seconds that this process has to detect the failure by itself.
    """

    def __init__(self, look: Callable[[], str | None], end: Callable[[str], None], grace_s: float = 15.0) -> None:
        self._look, self._end, self._grace_s = look, end, grace_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="agent_tunix_processes", daemon=True)

    def start(self) -> None:
        """Start the thread, which looks every second."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            try:
                failure = self._look()
            except Exception:  # the store is gone; the handler of SIGABRT reports it
                continue
            if failure is not None and not self._over.wait(self._grace_s):
                self._end(failure)
