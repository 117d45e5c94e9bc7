"""What a run will need, begun before it does, in threads beside what the run is doing: programs, the first evaluation.

A program is compiled for shapes. Those of the first step are known before it but for one: how long its longest
completion is. It is taken to be as long as completions may be; where that is wrong, the program is compiled when it is
needed, as without this.
"""

import concurrent.futures
import logging
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from agent_tunix.tracking.closing import Closing

_T = TypeVar("_T")
# The evaluation's, and as many as a step has: one may wait for another.
_MAX_THREADS = 4

_LOGGER = logging.getLogger("agent_tunix.run")


class Ahead(Closing):
    """What is begun ahead, by a name; a program's tells for which shapes."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="compile")
        self._begun: dict[Hashable, concurrent.futures.Future[Any]] = {}
        self._closing = threading.Event()

    def begin(self, name: Hashable, work: Callable[[], _T]) -> "concurrent.futures.Future[_T]":
        """Have a thread do some work; what was begun and not waited for is not begun again.

        Args:
            name: What to wait for.
            work: Where it fails, who needed it does it again, and says why.

        Returns:
            What it returns, once it does.
        """
        if name not in self._begun:
            self._begun[name] = self._pool.submit(work)
        return self._begun[name]

    def wait(self, name: Hashable) -> Any:
        """What was begun returned, once it does; None, at once, where it was not begun, and where it failed."""
        if (begun := self._begun.pop(name, None)) is None:
            return None
        if (error := begun.exception()) is not None:
            _LOGGER.debug("%s was not done ahead: %s: %s", name, type(error).__name__, error)
            return None
        return begun.result()

    def is_closing(self) -> bool:
        """Whether nobody waits any more for what is under way."""
        return self._closing.is_set()

    def close(self) -> None:
        """Begin nothing more, and wait for what is under way; a compilation cannot be broken off."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)
