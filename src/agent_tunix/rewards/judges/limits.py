"""Limits on requests to an endpoint and on their cost.

To an endpoint, judges with the same base URL and key variable are one client. Their requests count together, and the
strictest of their limits holds. A judge without a limit follows the others. Budgets are not shared.

All judges of a process ask in one event loop, so only `Pool.join` needs a lock.
"""

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_tunix.rewards.judges import MAX_CONCURRENCY
from agent_tunix.rewards.judges.faults import BudgetSpent

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.settings import EndpointSettings

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock in seconds and sleep function; tests replace them."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(slots=True)
class Slot:
    """Start time and tokens that the rate limiter has reserved for a request."""

    start_s: float  # earliest start, by the clock
    tokens: int  # estimated tokens; after the request, the tokens it used


class RateLimiter:
    """Limiter that delays requests to keep requests and tokens per minute within limits.

    Requests start in the order in which they ask. A request with more tokens than the limit waits for a minute without
    other requests. `limit` is called for each request with `requests_per_minute` and `tokens_per_minute`, and returns
    None if there is no limit.
    """

    def __init__(self, limit: Callable[[str], int | None], timing: Timing) -> None:
        self._limit = limit
        self._timing = timing
        self._slots: deque[Slot] = deque()

    async def acquire(self, tokens: int) -> Slot:
        """Wait until a request with this many tokens may begin. Afterwards, set the slot's tokens to those it used."""
        now = self._timing.clock()
        slot = Slot(self._earliest_start(now, tokens), tokens)
        self._slots.append(slot)
        if slot.start_s > now:
            await self._timing.sleep(slot.start_s - now)
        return slot

    def _earliest_start(self, now: float, tokens: int) -> float:
        """Return the earliest start of the next request, which is not before that of any request with a slot."""
        while self._slots and self._slots[0].start_s <= now - WINDOW_S:
            self._slots.popleft()
        start = max(now, self._slots[-1].start_s) if self._slots else now
        most_requests, most_tokens = self._limit("requests_per_minute"), self._limit("tokens_per_minute")
        if most_requests is not None and len(self._slots) >= most_requests:
            start = max(start, self._slots[-most_requests].start_s + WINDOW_S)
        if most_tokens is not None:
            window = [slot for slot in self._slots if slot.start_s > start - WINDOW_S]
            used = sum(slot.tokens for slot in window)
            for slot in window:
                if used + tokens <= most_tokens:
                    break
                start = max(start, slot.start_s + WINDOW_S)
                used -= slot.tokens
        return start


class JudgeBudget:
    """Budget of a judge. None means no limit.

    A request reserves its estimated cost before it is sent. The actual cost replaces it afterwards.
    """

    def __init__(self, max_requests: int | None, max_cost: float | None) -> None:
        self.max_requests = max_requests
        self.max_cost = max_cost
        self._requests = 0
        self._cost = 0.0

    def reserve(self, cost: float) -> None:
        """Reserve the highest cost of a request; raise BudgetSpent if the request would exceed the budget."""
        if self.max_requests is not None and self._requests >= self.max_requests:
            raise BudgetSpent(f"the judge's budget is used up: max_requests={self.max_requests}")
        if self.max_cost is not None and self._cost + cost > self.max_cost:
            raise BudgetSpent(
                f"the judge's budget is used up: {self._cost:.6g} of max_cost={self.max_cost:g}, "
                f"and the next request may cost {cost:.3g}"
            )
        self._requests += 1
        self._cost += cost

    def settle(self, reserved: float, cost: float) -> None:
        """Replace the reserved cost of a request by its actual cost."""
        self._cost += cost - reserved


class Pool:
    """Limits on concurrency and rate that judges share.

    Each request holds `gate` while it runs. `limiter` spreads requests over time.
    """

    def __init__(self, timing: Timing) -> None:
        self._members: weakref.WeakKeyDictionary[object, EndpointSettings] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._gate: tuple[int, asyncio.Semaphore] | None = None
        self.limiter = RateLimiter(self.limit, timing)

    def join(self, member: object, settings: "EndpointSettings") -> None:
        """Apply a judge's limits for as long as the judge exists."""
        with self._lock:
            self._members[member] = settings

    def limit(self, name: str) -> int | None:
        """Return the strictest limit of a name; None without one."""
        with self._lock:
            members = list(self._members.values())
        limits = [limit for settings in members if (limit := getattr(settings, name)) is not None]
        return min(limits, default=None)

    @property
    def gate(self) -> asyncio.Semaphore:
        """Semaphore of the strictest `max_concurrency`. After a change, requests under way do not count."""
        limit = self.limit("max_concurrency") or MAX_CONCURRENCY
        if self._gate is None or self._gate[0] != limit:
            self._gate = limit, asyncio.Semaphore(limit)
        return self._gate[1]


_pools: weakref.WeakValueDictionary[tuple[str, str | None, Timing], Pool] = weakref.WeakValueDictionary()
_pools_lock = threading.Lock()


def join_pool(member: object, settings: "EndpointSettings", timing: Timing) -> Pool:
    """Return the pool of a judge's endpoint, or the judge's own pool. A pool lives as long as it is referenced.

    Judges with different clocks share nothing.
    """
    pool = Pool(timing)
    if settings.share_limits:
        with _pools_lock:
            pool = _pools.setdefault((settings.base_url, settings.api_key_env, timing), pool)
    pool.join(member, settings)
    return pool
