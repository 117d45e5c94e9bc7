"""Threads for work that must not block other requests, with a limit on how much may wait."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from agent_tunix.service.problems import Problem

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
        if self._begun >= self._most:
            raise Problem(503, "busy", f"the server is busy: {self._begun} {self._what}; try again in a moment")
        done = asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **kwargs))
        self._begun += 1
        done.add_done_callback(self._count_down)
        return await done

    def _count_down(self, _: object) -> None:
        self._begun -= 1

    def close(self) -> None:
        """Wait for running calls; drop those that wait."""
        self._threads.shutdown(cancel_futures=True)
