"""Threads for work that must not block other requests, such as calls of the store, with limits on what may wait."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agent_tunix.service.problems import store_unavailable
from agent_tunix.store.opening import Store
from agent_tunix.web.problems import Problem

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class WorkThreads:
    """Threads that run calls, at most `most` at a time or waiting; `what` these are, for the answer to one too many."""

    def __init__(self, name: str, threads: int, most: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._most = most
        self._what = what
        self._begun = 0

    async def run(self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Run a call in a thread; raise Problem if there are too many."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._place())
            return await self._in_thread(held.pop_all(), lambda: call(*args, **kwargs))

    async def _in_thread(self, held: contextlib.ExitStack, call: Callable[[], Result]) -> Result:
        """Run a call; release what it holds when it ends, which is later than the caller's end if that is cancelled."""
        loop = asyncio.get_running_loop()
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(held.close))
        return await asyncio.wrap_future(future)

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """Hold one of the places for the block."""
        if self._begun >= self._most:
            raise Problem(503, "busy", f"the server is busy: {self._begun} {self._what}; try again in a moment")
        self._begun += 1
        try:
            yield
        finally:
            self._begun -= 1

    def close(self) -> None:
        """Wait for running calls; drop those that wait."""
        self._threads.shutdown(cancel_futures=True)


_READERS = 8
_WRITERS = 4
# Longest wait for a read, for a thread included.
READ_TIMEOUT_S = 20.0
# Writes that run or wait. Checking an upload takes about 50 ms, so a full queue lasts some
# seconds; checking a hostile one takes ten seconds.
_MOST_WRITES = 512


class StoreCalls:
    """Calls of the store that do not block other requests; the store stays open when this is closed.

    SQLite answers a read in well under a millisecond, without waiting for writers. A thread would cost more, so such
    reads run in the event loop. Writes, which wait for each other, and PostgreSQL, which may be remote, use threads.
    """

    def __init__(self, store: Store) -> None:
        self._is_near = store.engine.dialect.name == "sqlite"
        self._readers = ThreadPoolExecutor(_READERS, "store-reads")
        self._writers = WorkThreads("store-writes", _WRITERS, _MOST_WRITES, "changes are queued")

    async def read(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Make a call that changes nothing; raise Problem if the database does not answer in time."""
        if self._is_near:
            return call(*args, **kwargs)
        reading = asyncio.get_running_loop().run_in_executor(self._readers, lambda: call(*args, **kwargs))
        try:
            # A call that waits for a thread is dropped; one that runs ends by the limits of its connection.
            return await asyncio.wait_for(reading, READ_TIMEOUT_S)
        except TimeoutError:
            raise store_unavailable() from None

    async def write(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Make a call that changes something. Once started it completes, even if the client disconnects.

        Raises:
            Problem: Too many calls are waiting.
        """
        return await self._writers.run(call, *args, **kwargs)

    def close(self) -> None:
        """Wait for the writes that have started."""
        self._writers.close()
        self._readers.shutdown()
