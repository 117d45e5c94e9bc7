"""Programs compiled before they are needed, in threads beside what the run is doing.

A program is compiled for shapes. Those of the first step are known before it but for one: how long its longest
completion is. It is taken to be as long as completions may be; where that is wrong, the program is compiled when it is
needed, as without this.
"""

import concurrent.futures
import logging
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from agent_tunix.tracking.closing import Closing

_T = TypeVar("_T")
# The evaluation's, and as many as a step has: one may wait for another.
_MAX_THREADS = 4

_LOGGER = logging.getLogger("agent_tunix.run")


class Ahead(Closing):
    """What is compiled ahead, by a name that tells for which shapes."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="compile")
        self._begun: dict[Hashable, concurrent.futures.Future[Any]] = {}

    def begin(self, name: Hashable, compile_program: Callable[[], _T]) -> "concurrent.futures.Future[_T]":
        """Have a thread compile a program; one that was begun and not waited for is not begun again.

        Args:
            name: What to wait for.
            compile_program: Compiles it; where it fails, the program's call will too, and says why.

        Returns:
            What it returns, once it does.
        """
        if name not in self._begun:
            self._begun[name] = self._pool.submit(compile_program)
        return self._begun[name]

    def wait(self, name: Hashable) -> None:
        """Return when a program is compiled; at once where it was not begun."""
        if (begun := self._begun.pop(name, None)) is None:
            return
        if (error := begun.exception()) is not None:
            _LOGGER.debug("%s was not compiled ahead: %s: %s", name, type(error).__name__, error)

    def close(self) -> None:
        """Begin nothing more, and wait for what is under way, which cannot be broken off."""
        self._pool.shutdown(cancel_futures=True)
