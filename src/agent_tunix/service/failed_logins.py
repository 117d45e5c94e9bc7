"""Keys that are not valid, counted by the address that they come from: of the API and of the pages' log-in alike."""

import ipaddress
import math
import time
from collections.abc import Callable

from starlette.types import Scope

from agent_tunix.service.buckets import TokenBuckets
from agent_tunix.service.problems import Problem

# Whoever has one address of version 6 has all that begin like it.
_NETWORK_BITS = 64


class FailedLogins:
    """Refuses an address's further failures once there were too many.

    A key is looked up before anything is counted, so that a valid one always passes, whoever else shares its address:
    all that come through the same proxy do. No limit has to keep keys from being guessed, which have 238 random bits;
    this one keeps a client that goes on with a dead key from being answered at length, and from filling the log.

    Args:
        rate: Failures of an address in a second, on average; 0: they are not counted.
        size: How many it may have at once before that average counts.
        clock: Seconds from any moment on.
    """

    def __init__(self, rate: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = TokenBuckets(rate, size, clock)

    def count(self, scope: Scope) -> None:
        """Count a key that was not valid.

        Args:
            scope: Of the request that came with it.

        Raises:
            Problem: There were too many from its address; this is then the answer.
        """
        wait_s = self._buckets.take(network_of(scope))
        if wait_s:
            raise Problem(
                429,
                "too_many_failed_keys",
                f"too many keys that are not valid came from this address; look at the key, and wait {wait_s:.1f} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )


def network_of(scope: Scope) -> str:
    """Whoever sends a request: its address, or, of version 6, the network that one party has."""
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a socket of the file system has none
        return str(host)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
