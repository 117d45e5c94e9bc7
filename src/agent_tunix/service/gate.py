"""Who may pass: every call of the API needs a key that allows it, and no key may make too many."""

import math

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.errors import AccessDeniedError
from agent_tunix.service.buckets import TokenBuckets
from agent_tunix.service.calls import StoreCalls
from agent_tunix.service.failed_logins import FailedLogins
from agent_tunix.service.problems import Problem
from agent_tunix.store import Key
from agent_tunix.store.keys import Keys

API = "/v1"


class Gate:
    """Lets a request for the API pass with a key of the store; the key is then the `key` of the request's state.

    The store is asked each time, so that a revoked key opens nothing from that moment on. Nothing of a body is read
    before; and once it has come in whole, which the client may draw out, the store is asked again.
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
        """The key of a request.

        Raises:
            Problem: It has none, or has made too many requests; or too many keys that are not valid came from where
                this one did, which is not valid either.
            AccessDeniedError: The key is not valid, or does not allow this.
        """
        key = await self._authenticate(scope)
        wait_s = self._buckets.take(key.id)
        if wait_s:
            raise Problem(
                429,
                "rate_limit_exceeded",
                f"the key {key.name!r} makes too many requests; wait {wait_s:.3f} s",
                headers={"Retry-After": str(math.ceil(wait_s))},
            )
        key.require(required_scope(scope["method"], scope["path"]))
        return key

    async def _authenticate(self, scope: Scope) -> Key:
        given = Headers(scope=scope).get("authorization")
        if given is None:
            raise Problem(401, "missing_key", "an API key is needed: send the header `Authorization: Bearer vk_…`")
        try:
            return await self._calls.read(self._keys.authenticate, _secret(given))
        except AccessDeniedError:
            self._failed_logins.count(scope)
            raise


def is_api(path: str) -> bool:
    """Whether a path is the API's."""
    return path == API or path.startswith(f"{API}/")


def required_scope(method: str, path: str) -> str:
    """What a key must allow: to look, to run what is uploaded, or, for all else, to change what is there."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return "read"
    return "try" if path.endswith("/try") else "write"


def _secret(given: str) -> str:
    scheme, _, secret = given.partition(" ")
    if scheme.lower() != "bearer":
        raise AccessDeniedError("invalid_key", "the API key must be sent as `Authorization: Bearer vk_…`")
    return secret.strip()
