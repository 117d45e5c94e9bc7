"""Calls of the store from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agent_tunix.service.problems import Problem
from agent_tunix.store.opening import Store

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_READERS = 8
_WRITERS = 4
# Uploads that may wait for their turn; checking one takes some 50 ms, and a hostile one ten seconds.
_MOST_WAITING = 64


class StoreCalls:
    """Makes calls so that no request holds up the others.

    SQLite answers a read in well under a millisecond without waiting for writers, which is less than a thread costs:
    such a call is made at once. PostgreSQL may be far away, and a write waits for others; both have threads.

    Args:
        store: What is called; it stays open when this is closed.
    """

    def __init__(self, store: Store) -> None:
        self._is_near = store.engine.dialect.name == "sqlite"
        self._readers = ThreadPoolExecutor(_READERS, "store-reads")
        self._writers = ThreadPoolExecutor(_WRITERS, "store-writes")
        self._writing = 0

    async def read(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Make a call that changes nothing."""
        if self._is_near:
            return call(*args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, lambda: call(*args, **kwargs))

    async def write(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Make a call that changes something, to its end even if the client goes away.

        Raises:
            Problem: Too many are waiting.
        """
        if self._writing >= _MOST_WAITING:
            raise Problem(503, "busy", f"{self._writing} changes are waiting for their turn; try again in a moment")
        self._writing += 1
        try:
            done = asyncio.get_running_loop().run_in_executor(self._writers, lambda: call(*args, **kwargs))
            return await asyncio.shield(done)
        finally:
            self._writing -= 1

    def close(self) -> None:
        """Wait for the writes that have begun."""
        self._writers.shutdown()
        self._readers.shutdown()
