"""Access control of pages.

Every request is checked again: its session, the session's key in the store, and the key's scopes. A request that
changes something must also come from a page of this site: it carries the session's CSRF token, and its origin headers,
if any, name this site.
"""

import hmac
from dataclasses import replace
from typing import Any

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from agent_tunix.errors import NotStoredError
from agent_tunix.service.inspector.headers import COOKIE
from agent_tunix.service.inspector.sessions import Session, Sessions
from agent_tunix.service.problems import Problem
from agent_tunix.service.state import service_of

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

# Sec-Fetch-Site of requests from our pages, and of typed or reloaded addresses.
_OWN_SITE = ("same-origin", "none")


def sessions_of(request: Request) -> Sessions:
    """Return the sessions of the app that handles a request."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def session_of(request: Request) -> Session | None:
    """Return the session of a request that `requires` admitted; None on pages that need no login."""
    session: Session | None = getattr(request.state, "session", None)
    return session


def requires(*scopes: str) -> Any:
    """Return a route dependency that requires a login whose key has all scopes. Without scopes, any key is enough."""

    async def admit(request: Request) -> None:
        session = await find_session(request)
        if session is None:
            raise Problem(401, "not_logged_in", "this page requires a login; open /login and enter an API key")
        request.state.session = session
        request.state.key = session.key
        service_of(request).buckets.admit(session.key)
        for scope in scopes:
            session.key.require(scope)
        if request.method not in SAFE_METHODS:
            check_origin(request)
            await _check_token(request, session)

    return Depends(admit)


def is_logged_in(scope: Scope) -> bool:
    """Return True if a request has the token of a session; its key is checked later."""
    request = Request(scope)
    token = request.cookies.get(COOKIE)
    return token is not None and sessions_of(request).find(token) is not None


async def find_session(request: Request) -> Session | None:
    """Return the session of a request's cookie, with the current key; None if there is none."""
    token = request.cookies.get(COOKIE)
    sessions = sessions_of(request)
    session = sessions.find(token) if token else None
    if token is None or session is None:
        return None
    service = service_of(request)
    try:
        key = await service.calls.read(service.store.keys.get, session.key.id)
    except NotStoredError:
        key = None
    # A key that was revoked and created again has the same id but another secret.
    if key is None or key.revoked_at is not None or key.created_at != session.key.created_at:
        sessions.end(token)
        return None
    return replace(session, key=key)


def check_origin(request: Request) -> None:
    """Raise Problem if the browser reports another origin than this site."""
    headers = request.headers
    host = headers.get("host", "")
    origin = headers.get("origin", f"http://{host}")
    if headers.get("sec-fetch-site", "same-origin") not in _OWN_SITE or origin.partition("://")[2] != host:
        raise Problem(403, "foreign_origin", "this request must come from the inspector's own pages")


async def _check_token(request: Request, session: Session) -> None:
    given = request.headers.get(CSRF_HEADER)
    if given is None:
        field = (await request.form()).get(CSRF_FIELD)
        given = field if isinstance(field, str) else ""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), session.csrf.encode()):
        raise Problem(403, "invalid_csrf_token", "the form must belong to this login, but does not; reload its page")
