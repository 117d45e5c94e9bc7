"""Work that a step need not wait for, done beside it in order.

One thread does one piece after the other, so that files are written in the order of the steps. Nothing that fails is
lost: its error is raised in the run's own thread by the next call, and what was handed over after it is not done, since
a row that follows a missing one would hide the gap.

Python runs one thread at a time, and the run's own thread is the one that keeps the device busy. What is handed over at
the end of a step is therefore begun a moment later, when that thread has begun the next step's work on the device and
waits for it; at once where somebody waits for it.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

# What the run's thread takes, at most, to begin a step's work on the device.
MOMENT_S = 0.02

Annotate = Callable[[str], contextlib.AbstractContextManager[Any]]


class Background:
    """A thread that works in the order in which it was asked to.

    Leaving its `with` block waits for all of it. An error that nobody has seen yet is raised then; while another is on
    its way it becomes a note of that one. The thread is no daemon: a process that ends does so after what waits is
    done.

    Args:
        name: Of the thread.
        limit: Pieces of work that may wait, at least 1; `submit` waits while there are more.
        annotate: Called with the name of each piece as it begins; the context is left as it ends.
    """

    def __init__(self, name: str, limit: int, annotate: Annotate = contextlib.nullcontext) -> None:
        self._limit = limit
        self._annotate = annotate
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._pending: deque[Future[None]] = deque()
        self._error: BaseException | None = None
        self._awaited = threading.Event()

    def submit(self, name: str, work: Callable[[], object]) -> None:
        """Have work done after all that was handed over before; its arguments must not be changed afterwards.

        Raises:
            Exception: What work before it raised; this piece is not done then.
        """
        self.check()
        while len(self._pending) > self._limit:
            self._wait_for(self._pending.popleft())
        self._awaited.clear()
        self._pending.append(self._pool.submit(self._do, name, work, time.monotonic() + MOMENT_S))

    def check(self) -> None:
        """Without waiting, raise what work that is done has raised."""
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()

    def flush(self) -> None:
        """Return when everything is done.

        Raises:
            Exception: What the work raised.
        """
        while self._pending:
            self._wait_for(self._pending.popleft())

    def barrier(self) -> Callable[[], None]:
        """A function that returns, in any thread, when what was handed over so far is done.

        It raises what that work raised, which is raised here as well.
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
        """Wait for all of it, and end the thread; another call does nothing.

        Raises:
            Exception: What the work raised.
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
