"""How often an endpoint may be asked, and for how much.

Both are safe to use from several event loops and threads at once.
"""

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
    """A clock in seconds and how to wait; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(slots=True)
class Slot:
    """A request's place in time.

    Attributes:
        start_s: When it may begin, by the clock.
        tokens: What it is thought to use, and once that is known what it used.
    """

    start_s: float
    tokens: int


class RateLimiter:
    """Spreads requests so that in no minute there are more of them, or more tokens, than allowed.

    Who asks first goes first. A request larger than a minute's tokens waits until it has a minute to itself.

    Args:
        requests_per_minute: Asked anew for each request; None: no limit.
        tokens_per_minute: Likewise.
        timing: The clock and how to wait.
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
        """Wait until a request with so many tokens may begin."""
        with self._lock:
            now = self._timing.clock()
            slot = Slot(self._earliest_start(now, tokens), tokens)
            self._slots.append(slot)
        if slot.start_s > now:
            await self._timing.sleep(slot.start_s - now)
        return slot

    def settle(self, slot: Slot, tokens: int) -> None:
        """Say how many tokens a request really used."""
        with self._lock:
            slot.tokens = tokens

    def _earliest_start(self, now: float, tokens: int) -> float:
        """When the next request may begin, after all that already have a slot."""
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
    """What a judge may spend. A request is paid for at its estimate before it is sent and corrected afterwards.

    Args:
        max_requests: None: no limit.
        max_cost: None: no limit.
    """

    def __init__(self, max_requests: int | None, max_cost: float | None) -> None:
        self.max_requests = max_requests
        self.max_cost = max_cost
        self._requests = 0
        self._cost = 0.0
        self._lock = threading.Lock()

    def reserve(self, cost: float) -> None:
        """Pay for a request.

        Args:
            cost: The most that it may cost.

        Raises:
            BudgetSpent: That would go beyond the budget.
        """
        with self._lock:
            if self.max_requests is not None and self._requests >= self.max_requests:
                raise BudgetSpent(f"the judge's budget is spent: max_requests={self.max_requests}")
            if self.max_cost is not None and self._cost + cost > self.max_cost:
                raise BudgetSpent(
                    f"the judge's budget is spent: {self._cost:.6g} of max_cost={self.max_cost:g}, "
                    f"and the next request may cost {cost:.3g}"
                )
            self._requests += 1
            self._cost += cost

    def settle(self, reserved: float, cost: float) -> None:
        """Replace what was reserved for a request by what it did cost."""
        with self._lock:
            self._cost += cost - reserved
