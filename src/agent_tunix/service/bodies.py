"""Reading of request bodies, each in whole before the app sees it, limited in size and time."""

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.service.problems import Problem

# Bodies of other methods are not read.
_METHODS = ("POST", "PUT", "PATCH")
# Limit for clients without a valid key: enough to log in.
STRANGERS_BYTES = 16 * 1024
# Fields of a URL-encoded form. Starlette has this limit for multipart forms.
_MOST_FIELDS = 1000


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
        _check_fields(Headers(scope=scope), body)
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


def _check_fields(headers: Headers, body: bytes) -> None:
    """Refuse a form with very many fields, because parsing it holds up all other requests."""
    if headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        fields = body.count(b"&") + body.count(b";") + 1
        if fields > _MOST_FIELDS:
            raise Problem(400, "too_many_fields", f"a form may have at most {_MOST_FIELDS:,} fields, not {fields:,}")


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
