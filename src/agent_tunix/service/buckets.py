"""How many requests a key may make."""

import time
from collections.abc import Callable


class TokenBuckets:
    """A bucket of tokens for each key, of which a request takes one.

    Args:
        rate: Tokens that a bucket gains in a second; 0: requests are not counted.
        size: Tokens that it can hold; it begins full.
        clock: Seconds from any moment on.
    """

    def __init__(self, rate: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._size = float(size)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> float:
        """Take a token.

        Returns:
            0, or the seconds until there will be one.
        """
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, since = self._buckets.get(key, (self._size, now))
        tokens = min(self._size, tokens + (now - since) * self._rate)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            return (1 - tokens) / self._rate
        self._buckets[key] = (tokens - 1, now)
        return 0.0
