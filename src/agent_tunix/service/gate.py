"""Access control of the API: every call needs a key with the right scope, within the limits of its party."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.errors import AccessDeniedError
from agent_tunix.service.limits import TokenBuckets
from agent_tunix.service.threads import StoreCalls
from agent_tunix.store import Key
from agent_tunix.store.keys import Keys
from agent_tunix.web.problems import Problem

API = "/v1"


class Gate:
    """Middleware that requires a key for API requests and stores it as `key` in the request's state.

    Every request asks the store, so a revoked key stops working at once. No body is read before that. When a body is
    complete, the key is checked again, because the client may send it slowly.
    """

    def __init__(self, app: ASGIApp, keys: Keys, calls: StoreCalls, buckets: TokenBuckets) -> None:
        self._app = app
        self._keys = keys
        self._calls = calls
        self._buckets = buckets

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
            Problem: There is no key, or the key made too many requests.
            AccessDeniedError: The key is invalid, or lacks the scope.
        """
        key = await self._authenticate(scope)
        self._buckets.admit(key.id, key.name)
        key.require(required_scope(scope["method"], scope["path"]))
        return key

    async def _authenticate(self, scope: Scope) -> Key:
        given = Headers(scope=scope).get("authorization")
        if given is None:
            raise Problem(401, "missing_key", "an API key is required: send the header `Authorization: Bearer vk_…`")
        return await self._calls.read(self._keys.authenticate, _secret(given))


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
