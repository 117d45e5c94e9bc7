"""Outermost middleware: every request gets an id and a response, even if the app fails."""

import asyncio
import logging
import secrets
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.errors import AgentTunixError
from agent_tunix.service.problems import Problem, internal_error, problem_of

logger = logging.getLogger("agent_tunix.service")

# Bytes of a refused body that are still read, so that a client that is sending can read the response.
_LINGER_BYTES = 1024 * 1024
_LINGER_S = 1.0


class Envelope:
    """Middleware that gives requests an id, answers exceptions, and closes connections with unread bodies."""

    def __init__(self, app: ASGIApp, answer_problem: Callable[[Scope, Problem], Response]) -> None:
        self._app = app
        self._answer_problem = answer_problem

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
            problem = _tell(error, scope, request_id)
            if answer.has_begun:  # too late for another response
                raise
            await self._answer_problem(scope, problem)(scope, answer.receive, answer.send)


def _tell(error: Exception, scope: Scope, request_id: str) -> Problem:
    """Return the `Problem` with which the API answers an error; log the error if the client did not cause it."""
    if isinstance(error, Problem):
        return error
    problem = problem_of(error) if isinstance(error, AgentTunixError) else internal_error()
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
