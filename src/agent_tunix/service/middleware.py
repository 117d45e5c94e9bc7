"""Middleware of the pages: their headers and cookies."""

import re

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.service.gate import is_api

# Markup injected into a page cannot run, and cannot send data anywhere.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not `no-referrer`: browsers would then send `null` as the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_KEPT = "no-store"


class PageHeaders:
    """Middleware that adds `HEADERS` to responses, and disables caching where a response does not allow it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, adding headers to its response."""
        if scope["type"] != "http" or is_api(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", NOT_KEPT)
            await send(message)

        await self._app(scope, receive, send_with_headers)


COOKIE = "agent_tunix_session"
_OWN = re.compile(rb"(?:^|;)\s{0,8}(%s=[A-Za-z0-9_-]{1,200})\s{0,8}(?:;|$)" % COOKIE.encode())


class OwnCookie:
    """Middleware that removes all other cookies from a request.

    FastAPI parses the cookies of every request, and the standard library's parser takes seconds for some of them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app with the headers that are left."""
        if scope["type"] == "http":
            given = [(name, _OWN.search(value)) for name, value in scope["headers"] if name == b"cookie"]
            headers = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
            scope = {**scope, "headers": [*headers, *((name, found[1]) for name, found in given if found)]}
        await self._app(scope, receive, send)
