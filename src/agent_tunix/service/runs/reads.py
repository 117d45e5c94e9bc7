"""Reads of run directories from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agent_tunix.service.problems import Problem

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_READERS = 4
_MOST_WAITING = 64


class RunReads:
    """Threads for reads, so that a large run does not block other requests."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_READERS, "run-reads")
        self._waiting = 0

    async def make(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a read in a thread; raise Problem if too many are waiting."""
        if self._waiting >= _MOST_WAITING:
            raise Problem(503, "busy", f"the server is busy: {self._waiting} reads of runs are queued; try again")
        done = asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
        self._waiting += 1
        done.add_done_callback(self._count_down)
        return await done

    def _count_down(self, _: object) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Wait for running reads; drop those that wait."""
        self._threads.shutdown(cancel_futures=True)
