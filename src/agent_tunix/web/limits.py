"""Limits on what one client may ask of a server."""

import ipaddress
import math
import time
from collections.abc import Callable

from starlette.types import Scope

from agent_tunix.web.problems import Problem

# Beyond this number of parties, the least recently seen are forgotten.
MOST_PARTIES = 20_000


class TokenBuckets:
    """Token buckets, one for each party; each request takes a token.

    Args:
        rate: Tokens that a bucket gains per second; 0 disables the limit.
        size: Tokens that a bucket holds; it starts full.
        clock: Function that returns seconds since any fixed moment.
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

    def admit(self, party: str, name: str) -> None:
        """Take a token of an API key; raise the Problem that answers the request if there is none."""
        wait_s = self.take(party)
        if wait_s:
            message = f"the key {name!r} makes too many requests; wait {wait_s:.3f} s"
            raise Problem(429, "rate_limit_exceeded", message, headers={"Retry-After": str(math.ceil(wait_s))})


# An owner of one IPv6 address has its whole /64 network.
_NETWORK_BITS = 64


class FailedLogins:
    """Limit on the invalid keys that an address may send.

    A key is looked up before it is counted, so a valid key always passes, whoever shares its address (all clients
    behind one proxy do). Keys have 238 random bits and need no protection from guessing. This limit stops a client that
    keeps sending a dead key from getting long answers and from filling the log.

    Args:
        rate: Failures per second of an address, on average; 0 disables the limit.
        size: Failures that an address may have at once before the average applies.
        clock: Function that returns seconds since any fixed moment.
    """

    def __init__(self, rate: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = TokenBuckets(rate, size, clock)

    def count(self, scope: Scope) -> None:
        """Count the invalid key of a request; raise the Problem that answers it if its address sent too many."""
        wait_s = self._buckets.take(network_of(scope))
        if wait_s:
            raise Problem(
                429,
                "too_many_failed_keys",
                f"too many invalid keys came from this address; check the key, and wait {wait_s:.1f} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )


def network_of(scope: Scope) -> str:
    """Return the client address of a request; for IPv6, the network that one party owns."""
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket has no address
        return str(host)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
