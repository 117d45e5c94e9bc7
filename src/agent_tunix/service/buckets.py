"""Rate limits per party: requests of a key, failed keys of an address."""

import time
from collections.abc import Callable

# Beyond this number of parties, the least recently seen are forgotten.
MOST_PARTIES = 20_000


class TokenBuckets:
    """Token buckets, one for each party; each request takes a token.

    Args:
        rate: Tokens that a bucket gains per second; 0 disables the limit.
        size: Tokens that a bucket holds; it starts full.
        clock: Returns seconds since any fixed moment.
        most: Number of buckets that are kept.
    """

    def __init__(
        self, rate: float, size: int, clock: Callable[[], float] = time.monotonic, most: int = MOST_PARTIES
    ) -> None:
        self._rate = rate
        self._size = float(size)
        self._clock = clock
        self._most = most
        self._buckets: dict[str, tuple[float, float]] = {}  # least recently used first

    def take(self, party: str) -> float:
        """Take a token; return 0, or the seconds until one is available if the bucket is empty."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.pop(party, (self._size, now))
        tokens = min(self._size, tokens + (now - since) * self._rate)
        self._buckets[party] = (tokens if tokens < 1 else tokens - 1, now)
        if len(self._buckets) > self._most:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if tokens >= 1 else (1 - tokens) / self._rate
