"""How much of something one party may have in a time: requests of a key, failed keys of an address."""

import time
from collections.abc import Callable

# Of more parties than this, those that were not heard of the longest are forgotten.
MOST_PARTIES = 20_000


class TokenBuckets:
    """A bucket of tokens for each party, of which each request takes one.

    Args:
        rate: Tokens that a bucket gains in a second; 0: nothing is counted.
        size: Tokens that it can hold; it begins full.
        clock: Seconds from any moment on.
        most: How many buckets are kept.
    """

    def __init__(
        self, rate: float, size: int, clock: Callable[[], float] = time.monotonic, most: int = MOST_PARTIES
    ) -> None:
        self._rate = rate
        self._size = float(size)
        self._clock = clock
        self._most = most
        self._buckets: dict[str, tuple[float, float]] = {}  # the one that was used last is last

    def take(self, party: str) -> float:
        """Take a token.

        Returns:
            0, or the seconds until there will be one.
        """
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.pop(party, (self._size, now))
        tokens = min(self._size, tokens + (now - since) * self._rate)
        self._buckets[party] = (tokens if tokens < 1 else tokens - 1, now)
        if len(self._buckets) > self._most:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if tokens >= 1 else (1 - tokens) / self._rate
