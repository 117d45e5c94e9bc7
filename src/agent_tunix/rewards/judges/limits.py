"""Limits on requests to an endpoint and on their cost, safe for several event loops and threads."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent_tunix.rewards.judges.faults import BudgetSpent

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
    other requests. The limits are functions that are called for each request and return None if there is no limit.
    """

    def __init__(
        self,
        requests_per_minute: Callable[[], int | None],
        tokens_per_minute: Callable[[], int | None],
        timing: Timing | None = None,
    ) -> None:
        self._requests_per_minute = requests_per_minute
        self._tokens_per_minute = tokens_per_minute
        self._timing = timing or Timing()
        self._lock = threading.Lock()
        self._slots: deque[Slot] = deque()

    async def acquire(self, tokens: int) -> Slot:
        """Wait until a request with this many tokens may begin."""
        with self._lock:
            now = self._timing.clock()
            slot = Slot(self._earliest_start(now, tokens), tokens)
            self._slots.append(slot)
        if slot.start_s > now:
            await self._timing.sleep(slot.start_s - now)
        return slot

    def settle(self, slot: Slot, tokens: int) -> None:
        """Record how many tokens a request used."""
        with self._lock:
            slot.tokens = tokens

    def _earliest_start(self, now: float, tokens: int) -> float:
        """Return the earliest start of the next request, which is not before that of any request with a slot."""
        while self._slots and self._slots[0].start_s <= now - WINDOW_S:
            self._slots.popleft()
        start = max(now, self._slots[-1].start_s) if self._slots else now
        most_requests, most_tokens = self._requests_per_minute(), self._tokens_per_minute()
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
        self._lock = threading.Lock()

    def reserve(self, cost: float) -> None:
        """Reserve the highest cost of a request; raise BudgetSpent if the request would exceed the budget."""
        with self._lock:
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
        with self._lock:
            self._cost += cost - reserved
