"""Calls of the store from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from agent_tunix.service.pools import WorkThreads
from agent_tunix.service.problems import store_unavailable
from agent_tunix.store import Key
from agent_tunix.store.opening import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_READERS = 8
_WRITERS = 4
# Longest wait for a read, for a thread included.
READ_TIMEOUT_S = 20.0
# Writes that run or wait, half of them of one key. Checking an upload takes about 50 ms, so a full queue lasts some
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
        self,
        call: Callable[Concatenate[Key, Arguments], Result],
        key: Key,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        """Make a call that changes something for a key. Once started it completes, even if the client disconnects.

        Raises:
            Problem: Too many calls are waiting, in total or of this key.
        """
        return await self._writers.run_for(key, call, key, *args, **kwargs)

    def close(self) -> None:
        """Wait for the writes that have started."""
        self._writers.close()
        self._readers.shutdown()
