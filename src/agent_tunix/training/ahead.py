"""What a run will need, begun before it does, in threads beside what the run is doing: programs, the first evaluation.

A program is compiled for shapes. Those of the first step are known before it but for one: how long its longest
completion is. It is taken to be as long as completions may be; where that is wrong, the program is compiled when it is
needed, as without this.
"""

import concurrent.futures
import functools
import logging
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from agent_tunix.errors import Interrupted
from agent_tunix.tracking.closing import Closing

_T = TypeVar("_T")
# The evaluation's, and as many as a step has: one may wait for another.
_MAX_THREADS = 4
_THREADS = "compile"

_LOGGER = logging.getLogger("agent_tunix.run")


class Ahead(Closing):
    """What is begun ahead, by a name; a program's tells for which shapes."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=_THREADS)
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

    def begin_in_turn(self, works: Mapping[Hashable, Callable[[Callable[[], None]], Any]]) -> None:
        """Have a thread do each of some works, of which the first parts need Python, and the rest does not.

        Python does one thing at a time, so that they are sooner done one after the other than beside one another: the
        first before this returns, those of the others in their order.

        Args:
            works: By what to wait for; each is given what to call once its first part is done.
        """
        turns: list[threading.Event] = []
        for name, work in works.items():
            if name not in self._begun:
                # Threads take works in the order they are given, so that none waits for one that was not begun.
                turns.append(threading.Event())
                self.begin(name, functools.partial(_do_in_turn, work, turns[-2:-1], turns[-1]))
        for first in turns[:1]:
            first.wait()

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; who stops a run wants the process to end, which need not wait for what nobody will use."""
        self._closing.set()
        self._pool.shutdown(wait=not isinstance(error, KeyboardInterrupt | Interrupted), cancel_futures=True)


def is_under_way() -> bool:
    """Whether a thread of this process still does what was begun; its end would wait for that."""
    return any(thread.name.startswith(_THREADS) for thread in threading.enumerate())


def _do_in_turn(
    work: Callable[[Callable[[], None]], _T], before: Sequence[threading.Event], done: threading.Event
) -> _T:
    try:
        for other in before:
            other.wait()
        return work(done.set)
    finally:
        done.set()
