"""The cookie of a session, the only one that the service reads."""

import re

from starlette.types import ASGIApp, Receive, Scope, Send

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
