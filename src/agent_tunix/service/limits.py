"""Limit on the requests of a key."""

import math
import time

from agent_tunix.web.problems import Problem


class TokenBuckets:
    """Token buckets, one for each key; each request takes a token.

    Args:
        rate: Tokens that a bucket gains per second; 0 disables the limit.
        size: Tokens that a bucket holds; it starts full.
    """

    def __init__(self, rate: float, size: int) -> None:
        self._rate = rate
        self._size = float(size)
        self._buckets: dict[str, tuple[float, float]] = {}  # id of a key → its tokens, and since when

    def admit(self, key: str, name: str) -> None:
        """Take a token of a key; raise the Problem that answers the request if there is none."""
        if not self._rate:
            return
        now = time.monotonic()
        tokens, since = self._buckets.get(key, (self._size, now))
        tokens = min(self._size, tokens + (now - since) * self._rate)
        self._buckets[key] = (tokens if tokens < 1 else tokens - 1, now)
        if tokens < 1:
            wait_s = (1 - tokens) / self._rate
            message = f"the key {name!r} makes too many requests; wait {wait_s:.3f} s"
            raise Problem(429, "rate_limit_exceeded", message, headers={"Retry-After": str(math.ceil(wait_s))})
