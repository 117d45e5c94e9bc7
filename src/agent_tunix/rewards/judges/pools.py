"""Limits that all judges at one endpoint share in one process.

To an endpoint, judges with the same base URL and key variable are one client. Their requests count together, and the
strictest of their limits holds. A judge without a limit follows the others. Budgets are not shared.
"""

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType

from agent_tunix.rewards.judges.limits import RateLimiter, Timing
from agent_tunix.rewards.judges.settings import EndpointSettings

MAX_CONCURRENCY = 16  # if no judge sets it


@dataclass(slots=True)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[None]"
    is_let_in: bool = False


class JudgeGate:
    """Fair semaphore for several event loops and threads. `limit` is called each time a request enters or leaves."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[_Waiter] = deque()

    async def __aenter__(self) -> None:
        with self._lock:
            if not self._waiting and self._inside < self._limit():
                self._inside += 1
                return
            loop = asyncio.get_running_loop()
            waiter = _Waiter(loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            with self._lock:
                if waiter.is_let_in:
                    self._inside -= 1
                else:
                    self._waiting.remove(waiter)
                self._let_in()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._inside < self._limit():
            waiter = self._waiting.popleft()
            try:
                waiter.loop.call_soon_threadsafe(_wake, waiter.future)
            except RuntimeError:  # its event loop is closed, so nobody waits
                continue
            waiter.is_let_in = True
            self._inside += 1


class Pool:
    """Shared limits on concurrency and rate.

    Each request holds `gate` while it runs. `limiter` spreads requests over time.
    """

    def __init__(self, timing: Timing) -> None:
        self._members: weakref.WeakKeyDictionary[object, EndpointSettings] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self.gate = JudgeGate(lambda: min(self._given("max_concurrency"), default=MAX_CONCURRENCY))
        self.limiter = RateLimiter(
            lambda: min(self._given("requests_per_minute"), default=None),
            lambda: min(self._given("tokens_per_minute"), default=None),
            timing,
        )

    def join(self, member: object, settings: EndpointSettings) -> None:
        """Apply a judge's limits for as long as the judge exists."""
        with self._lock:
            self._members[member] = settings

    def _given(self, name: str) -> Iterator[int]:
        with self._lock:
            members = list(self._members.values())
        return (limit for settings in members if (limit := getattr(settings, name)) is not None)


_pools: weakref.WeakValueDictionary[tuple[str, str | None, Timing], Pool] = weakref.WeakValueDictionary()
_pools_lock = threading.Lock()


def join_pool(member: object, settings: EndpointSettings, timing: Timing) -> Pool:
    """Return the pool of a judge's endpoint, or the judge's own pool. A pool lives as long as it is referenced.

    Judges with different clocks share nothing.
    """
    if settings.share_limits:
        place = (settings.base_url, settings.api_key_env, timing)
        with _pools_lock:
            pool = _pools.get(place)
            if pool is None:
                pool = _pools[place] = Pool(timing)
    else:
        pool = Pool(timing)
    pool.join(member, settings)
    return pool


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():  # otherwise its task was cancelled and has passed its place on
        future.set_result(None)
