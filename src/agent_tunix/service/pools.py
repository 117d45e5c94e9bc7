"""Threads for work that must not block other requests, with a limit on how much may wait."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from agent_tunix.service.problems import Problem
from agent_tunix.store import Key

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class WorkThreads:
    """Threads that run calls, at most `most` at a time or waiting; `what` these are, for the answer to one too many."""

    def __init__(self, name: str, threads: int, most: int, what: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._most = most
        self._what = what
        self._begun = 0
        self._begun_of: Counter[str] = Counter()
        # All threads but one, so that slow calls of a key do not hold up those of others.
        self._at_once_of_a_key = max(threads - 1, 1)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Run a call in a thread; raise Problem if there are too many."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._place())
            return await self._in_thread(held.pop_all(), lambda: call(*args, **kwargs))

    async def run_for(
        self, key: Key, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a call of a key, which may have half of the places; raise Problem if there are too many."""
        turns = self._turns.setdefault(key.id, asyncio.Semaphore(self._at_once_of_a_key))
        with contextlib.ExitStack() as held:
            held.enter_context(self._place_of(key))
            held.enter_context(self._place())
            await turns.acquire()
            held.callback(turns.release)
            return await self._in_thread(held.pop_all(), lambda: call(*args, **kwargs))

    async def _in_thread(self, held: contextlib.ExitStack, call: Callable[[], Result]) -> Result:
        """Run a call; release what it holds when it ends, which is later than the caller's end if that is cancelled."""
        loop = asyncio.get_running_loop()
        future = self._threads.submit(call)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(held.close))
        return await asyncio.wrap_future(future)

    @contextlib.contextmanager
    def _place_of(self, key: Key) -> Iterator[None]:
        """Hold one of the places of a key for the block."""
        if (mine := self._begun_of[key.id]) >= max(self._most // 2, 1):
            raise self._busy(f", {mine} of them with this key")
        self._begun_of[key.id] += 1
        try:
            yield
        finally:
            self._begun_of[key.id] -= 1
            self._begun_of += Counter()  # drops keys with no calls left

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """Hold one of the places for the block."""
        if self._begun >= self._most:
            raise self._busy()
        self._begun += 1
        try:
            yield
        finally:
            self._begun -= 1

    def _busy(self, of_these: str = "") -> Problem:
        said = f"the server is busy: {self._begun} {self._what}{of_these}; try again in a moment"
        return Problem(503, "busy", said)

    def close(self) -> None:
        """Wait for running calls; drop those that wait."""
        self._threads.shutdown(cancel_futures=True)
