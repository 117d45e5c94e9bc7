"""Middleware of a server: ids and answers of requests, host names, and bodies."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.errors import AgentTunixError
from agent_tunix.web.problems import Problem, internal_error

logger = logging.getLogger("agent_tunix.web")

# Bytes of a refused body that are still read, so that a client that is sending can read the response.
_LINGER_BYTES = 1024 * 1024
_LINGER_S = 1.0


class Envelope:
    """Middleware that gives requests an id, answers exceptions, and closes connections with unread bodies."""

    def __init__(
        self,
        app: ASGIApp,
        answer_problem: Callable[[Scope, Problem], Response],
        problem_of: Callable[[AgentTunixError], Problem],
    ) -> None:
        self._app = app
        self._answer_problem = answer_problem
        self._problem_of = problem_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, and answer if it raises an error."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(scope, receive, send, request_id)
        try:
            await self._app(scope, answer.receive, answer.send)
        except Exception as error:  # the client gets a response to any defect of ours
            problem = self._tell(error, scope, request_id)
            if answer.has_begun:  # too late for another response
                raise
            await self._answer_problem(scope, problem)(scope, answer.receive, answer.send)

    def _tell(self, error: Exception, scope: Scope, request_id: str) -> Problem:
        """Return the `Problem` with which the API answers an error; log the error if the client did not cause it."""
        if isinstance(error, Problem):
            return error
        problem = self._problem_of(error) if isinstance(error, AgentTunixError) else internal_error()
        if problem.status >= 500:
            logger.error("%s %s %s failed", request_id, scope["method"], scope["path"], exc_info=error)
        return problem


class _Answer:
    """Response in progress, with the headers that all responses have."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        headers = Headers(scope=scope)
        self._has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self._receive = receive
        self._send = send
        self._request_id = request_id
        self.has_begun = False

    async def receive(self) -> Message:
        """Receive a message, and record when the request body has been read."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._has_body = False
        return message

    async def send(self, message: Message) -> None:
        """Send a message with the common headers. If the body is unread, read some of it before the response ends."""
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            headers.setdefault("X-Content-Type-Options", "nosniff")
            if self._has_body:
                headers["Connection"] = "close"
        elif self._has_body and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _linger(self) -> None:
        """Read more of the body: closing a connection while the client sends may lose the response."""
        left = _LINGER_BYTES
        try:
            async with asyncio.timeout(_LINGER_S):
                while left > 0 and self._has_body:
                    left -= len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass


LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Hosts:
    """Middleware that passes requests whose Host header is an allowed name or address; `*` allows any.

    This stops web pages whose own name resolves to this service (DNS rebinding). The address on which a request arrived
    is always allowed: a web page cannot have another machine's address as its name.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = [spelling for name in allowed for spelling in _spellings(name)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Host header, then call the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_allowed = False

        async def allow(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal is_allowed
            is_allowed = True

        async def drop(message: Message) -> None:
            """Drop the answer of Starlette, which is no JSON."""

        own = scope.get("server")
        allowed = [*self._allowed, *(_spellings(str(own[0])) if own else ())]
        await TrustedHostMiddleware(allow, allowed, www_redirect=False)(scope, receive, drop)
        if not is_allowed:
            raise Problem(
                400,
                "invalid_host",
                "the Host header must name this service; use the address that it prints, or have its operator "
                "add the name with --allowed-host",
            )
        await self._app(scope, receive, send)


def _spellings(name: str) -> tuple[str, ...]:
    """Return the forms in which a Host header may have a name or address."""
    plain = name.strip().lower().rstrip(".").strip("[]")
    return (f"[{plain}]", plain) if ":" in plain else (plain, f"{plain}.")


# Bodies of other methods are not read.
_METHODS = ("POST", "PUT", "PATCH")
# Limit for clients without a valid key: enough to log in.
STRANGERS_BYTES = 16 * 1024


class Bodies:
    """Middleware that reads a body up to a limit and passes it on in one piece.

    Args:
        app: The wrapped app.
        max_bytes: Largest body. A larger Content-Length is refused before the body is read.
        timeout_s: Seconds in which the whole body must arrive.
        is_known: True for a client that has shown a valid key; others may send only small bodies.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float, is_known: Callable[[Scope], bool]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, then call the app."""
        if scope["type"] != "http" or scope["method"] not in _METHODS:
            await self._app(scope, receive, send)
            return
        most = self._max_bytes if self._is_known(scope) else min(self._max_bytes, STRANGERS_BYTES)
        _check_headers(Headers(scope=scope), most)
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await _read(receive, most)
        except TimeoutError:
            raise Problem(
                408, "body_timeout", f"the body must arrive within {self._timeout_s:g} s; send it again, faster"
            ) from None
        if body is None:
            return  # the client disconnected
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)


def _check_headers(headers: Headers, most: int) -> None:
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem(
            415, "unsupported_encoding", f"bodies must be sent without Content-Encoding, not with: {encoding}"
        )
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Problem(
            400,
            "malformed_request",
            "the request must have either Content-Length or Transfer-Encoding, but has both; remove Content-Length",
        )
    if int(headers.get("content-length", "0")) > most:  # the server has checked that it is a number
        raise _too_large(most)


async def _read(receive: Receive, most: int) -> bytes | None:
    """Return the body; None if the client disconnects."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> Problem:
    hint = "log in, or send less" if most <= STRANGERS_BYTES else "send less"
    return Problem(413, "body_too_large", f"the body must have at most {most:,} bytes here; {hint}")
