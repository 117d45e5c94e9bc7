"""Background work, done in order by a thread beside the run.

One thread does all tasks in order, so files are written in the order of the steps. No failure is lost: the next call
raises the error in the run's own thread. Later tasks are not done, because a row after a missing one would hide the
gap.

Python runs one thread at a time, and the run's own thread keeps the device busy. So a task that is submitted at the end
of a step starts a moment later, when the run's thread has dispatched the next step's work and waits for the device. It
starts at once if someone waits for it.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

# Upper bound on the time in which the run's thread dispatches a step's work to the device.
MOMENT_S = 0.02

Annotate = Callable[[str], contextlib.AbstractContextManager[Any]]


class Background:
    """A thread that does tasks in order.

    Leaving its `with` block waits for all tasks. An error that has not been raised yet is raised then; if another error
    is already propagating, it becomes a note of that one. The thread is not a daemon: the process ends only after
    waiting tasks are done.

    Args:
        name: Name of the thread.
        limit: Tasks that may wait, at least 1; `submit` blocks while there are more.
        annotate: Called with the name of each task when it starts; the context is left when it ends.
    """

    def __init__(self, name: str, limit: int, annotate: Annotate = contextlib.nullcontext) -> None:
        self._limit = limit
        self._annotate = annotate
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._pending: deque[Future[None]] = deque()
        self._error: BaseException | None = None
        self._awaited = threading.Event()

    def submit(self, name: str, work: Callable[[], object]) -> None:
        """Add a task after all earlier ones; its arguments must not be changed afterwards.

        Raises:
            Exception: Error of an earlier task; this task is not done then.
        """
        self.check()
        while len(self._pending) > self._limit:
            self._wait_for(self._pending.popleft())
        self._awaited.clear()
        self._pending.append(self._pool.submit(self._do, name, work, time.monotonic() + MOMENT_S))

    def check(self) -> None:
        """Raise the error of a finished task, without waiting."""
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()

    def flush(self) -> None:
        """Wait until all tasks are done.

        Raises:
            Exception: Error of a task.
        """
        while self._pending:
            self._wait_for(self._pending.popleft())

    def barrier(self) -> Callable[[], None]:
        """Return a function that waits, in any thread, until all tasks submitted so far are done.

        That function raises the error of a task, and the next call here raises it too.
        """
        waiting = tuple(self._pending)

        def wait() -> None:
            for future in waiting:
                self._wait_for(future)

        return wait

    def _wait_for(self, future: Future[None]) -> None:
        self._awaited.set()
        future.result()

    def _do(self, name: str, work: Callable[[], object], begin_at: float) -> None:
        if self._error is not None:
            raise self._error
        self._awaited.wait(max(0.0, begin_at - time.monotonic()))
        try:
            with self._annotate(name):
                work()
        except BaseException as error:
            self._error = error
            raise

    def close(self) -> None:
        """Wait for all tasks and end the thread; another call does nothing.

        Raises:
            Exception: Error of a task.
        """
        try:
            self.flush()
        finally:
            self._pending.clear()
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as unseen:
            if error is None:
                raise
            if unseen is not error:
                error.add_note(f"Besides: {unseen}")
