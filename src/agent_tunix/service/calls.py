"""Calls of the store from the event loop."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from agent_tunix.service.problems import Problem
from agent_tunix.store import Key
from agent_tunix.store.opening import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_READERS = 8
_WRITERS = 4
# Uploads that may wait. Checking one takes about 50 ms, a hostile one ten seconds.
_MOST_WAITING = 64
# Limits for one key, so that its uploads cannot block those of others.
_MOST_OF_A_KEY = 32
_AT_ONCE_OF_A_KEY = _WRITERS - 1


class StoreCalls:
    """Calls of the store that do not block other requests; the store stays open when this is closed.

    SQLite answers a read in well under a millisecond, without waiting for writers. A thread would cost more, so such
    reads run in the event loop. Writes, which wait for each other, and PostgreSQL, which may be remote, use threads.
    """

    def __init__(self, store: Store) -> None:
        self._is_near = store.engine.dialect.name == "sqlite"
        self._readers = ThreadPoolExecutor(_READERS, "store-reads")
        self._writers = ThreadPoolExecutor(_WRITERS, "store-writes")
        self._writing: Counter[str] = Counter()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def read(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Make a call that changes nothing."""
        if self._is_near:
            return call(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: call(*args, **kwargs))

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
        waiting, mine = self._writing.total(), self._writing[key.id]
        if waiting >= _MOST_WAITING or mine >= _MOST_OF_A_KEY:
            raise Problem(
                503,
                "busy",
                f"the server is busy: {waiting} changes are queued, {mine} of them with this key; try again in a "
                "moment",
            )
        turns = self._turns.setdefault(key.id, asyncio.Semaphore(_AT_ONCE_OF_A_KEY))
        self._writing[key.id] += 1
        try:
            async with turns:
                loop = asyncio.get_running_loop()
                return await asyncio.shield(loop.run_in_executor(self._writers, lambda: call(key, *args, **kwargs)))
        finally:
            self._writing[key.id] -= 1
            self._writing += Counter()  # drops keys with no calls left

    def close(self) -> None:
        """Wait for the writes that have started."""
        self._writers.shutdown()
        self._readers.shutdown()
