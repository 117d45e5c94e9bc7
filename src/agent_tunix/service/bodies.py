"""Bodies of requests, taken in whole before anything is done with them: within a size, and within a time."""

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.service.problems import Problem

# Those of other methods are not read at all.
_METHODS = ("POST", "PUT", "PATCH")
# Of whoever is not known: room for a log-in.
STRANGERS_BYTES = 16 * 1024


class Bodies:
    """Reads a body up to a limit, and hands it on in one piece.

    Args:
        app: What it is handed to.
        max_bytes: The largest body; one that says to be larger is refused before it is read.
        timeout_s: By when all of it must have come.
        is_known: Whether a request is of somebody who has shown a key; the bodies of others are small.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float, is_known: Callable[[Scope], bool]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                408, "body_timeout", f"the body must have come within {self._timeout_s:g} s; send it again, faster"
            ) from None
        if body is None:
            return  # the client has gone
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)


def _check_headers(headers: Headers, most: int) -> None:
    encoding = headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Problem(
            415, "unsupported_encoding", f"bodies must be sent as they are, not with Content-Encoding: {encoding}"
        )
    if "content-length" in headers and "transfer-encoding" in headers:
        raise Problem(400, "malformed_request", "the request says twice how long its body is; leave out Content-Length")
    if int(headers.get("content-length", "0")) > most:  # the server has seen that it is a number
        raise _too_large(most)


async def _read(receive: Receive, most: int) -> bytes | None:
    """The body; None where the client goes away."""
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
    return Problem(413, "body_too_large", f"a body may have at most {most:,} bytes here; {hint}")
