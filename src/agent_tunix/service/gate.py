"""Access control of the API: every call needs a key with the right scope, within the limits of its party."""

import ipaddress
import math
import time
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.errors import AccessDeniedError
from agent_tunix.service.problems import Problem
from agent_tunix.service.threads import StoreCalls
from agent_tunix.store import Key
from agent_tunix.store.keys import Keys

API = "/v1"

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

    def admit(self, key: Key) -> None:
        """Take a token of an API key; raise the Problem that answers the request if there is none."""
        wait_s = self.take(key.id)
        if wait_s:
            message = f"the key {key.name!r} makes too many requests; wait {wait_s:.3f} s"
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


class Gate:
    """Middleware that requires a key for API requests and stores it as `key` in the request's state.

    Every request asks the store, so a revoked key stops working at once. No body is read before that. When a body is
    complete, the key is checked again, because the client may send it slowly.
    """

    def __init__(
        self, app: ASGIApp, keys: Keys, calls: StoreCalls, buckets: TokenBuckets, failed_logins: FailedLogins
    ) -> None:
        self._app = app
        self._keys = keys
        self._calls = calls
        self._buckets = buckets
        self._failed_logins = failed_logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key of an API request, then call the app."""
        if scope["type"] != "http" or not is_api(scope["path"]):
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})["key"] = await self.admit(scope)

        async def receive_while_valid() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                await self._authenticate(scope)
            return message

        await self._app(scope, receive_while_valid, send)

    async def admit(self, scope: Scope) -> Key:
        """Return the key of a request.

        Raises:
            Problem: There is no key, the key made too many requests, or its address sent too many invalid keys.
            AccessDeniedError: The key is invalid, or lacks the scope.
        """
        key = await self._authenticate(scope)
        self._buckets.admit(key)
        key.require(required_scope(scope["method"], scope["path"]))
        return key

    async def _authenticate(self, scope: Scope) -> Key:
        given = Headers(scope=scope).get("authorization")
        if given is None:
            raise Problem(401, "missing_key", "an API key is required: send the header `Authorization: Bearer vk_…`")
        try:
            return await self._calls.read(self._keys.authenticate, _secret(given))
        except AccessDeniedError:
            self._failed_logins.count(scope)
            raise


def is_api(path: str) -> bool:
    """Return True if a path belongs to the API."""
    return path == API or path.startswith(f"{API}/")


def required_scope(method: str, path: str) -> str:
    """Return the scope that a request needs: `read`, `try` to run uploaded code, or `write` for everything else."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return "read"
    return "try" if path.endswith("/try") else "write"


def _secret(given: str) -> str:
    scheme, _, secret = given.partition(" ")
    if scheme.lower() != "bearer":
        raise AccessDeniedError("invalid_key", "the API key must be sent as `Authorization: Bearer vk_…`")
    return secret.strip()
