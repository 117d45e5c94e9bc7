"""Who may see a page, or change something by one.

Every request is looked at anew: its session, the key behind it, which the store is asked for, and the key's scopes. A
request that changes something must also come from a page of this site: it bears the session's CSRF token, and what the
browser says of its origin must not speak against it.
"""

import hmac
import math
from dataclasses import replace
from typing import Any

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from agent_tunix.errors import NotStoredError
from agent_tunix.service.inspector.sessions import Session, Sessions
from agent_tunix.service.problems import Problem
from agent_tunix.service.state import service_of

COOKIE = "agent_tunix_session"
CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

# What Sec-Fetch-Site says of a request of one's own pages, and of what was typed or reloaded.
_OWN_SITE = ("same-origin", "none")

# In place of a scope: whatever the key allows.
ANY_KEY = ""


def sessions_of(request: Request) -> Sessions:
    """Who is logged in, at the app that a request came to."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def session_of(request: Request) -> Session | None:
    """The session of a request that `requires` has let through; None on a page that needs none."""
    session: Session | None = getattr(request.state, "session", None)
    return session


def requires(scope: str) -> Any:
    """A dependency of a route: it wants somebody who is logged in with a key that has a scope, or with `ANY_KEY`."""

    async def admit(request: Request) -> None:
        session = await find_session(request)
        if session is None:
            raise Problem(401, "not_logged_in", "this needs a log-in; open /login and give an API key")
        request.state.session = session
        await _check_rate(request, session)
        if scope != ANY_KEY:
            session.key.require(scope)
        if request.method not in SAFE_METHODS:
            check_origin(request)
            await _check_token(request, session)

    return Depends(admit)


def is_logged_in(scope: Scope) -> bool:
    """Whether a request bears the token of a session; whether its key still opens anything is looked up later."""
    request = Request(scope)
    token = request.cookies.get(COOKIE)
    return token is not None and sessions_of(request).find(token) is not None


async def find_session(request: Request) -> Session | None:
    """The session that a request's cookie opens, with the key as it is now; None where it opens none."""
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
    # A key that was revoked and made anew has the same id, and another secret.
    if key is None or key.revoked_at is not None or key.created_at != session.key.created_at:
        sessions.end(token)
        return None
    return replace(session, key=key)


async def _check_rate(request: Request, session: Session) -> None:
    wait_s = service_of(request).buckets.take(session.key.id)
    if wait_s:
        raise Problem(
            429,
            "rate_limit_exceeded",
            f"the key {session.key.name!r} makes too many requests; wait {wait_s:.3f} s",
            headers={"Retry-After": str(math.ceil(wait_s))},
        )


def check_origin(request: Request) -> None:
    """See that what the browser says of a request's origin is this site.

    Raises:
        Problem: It comes from elsewhere.
    """
    headers = request.headers
    host = headers.get("host", "")
    origin = headers.get("origin", f"http://{host}")
    if headers.get("sec-fetch-site", "same-origin") not in _OWN_SITE or origin.partition("://")[2] != host:
        raise Problem(
            403, "foreign_origin", "this can be done from the inspector's own pages alone, not from elsewhere"
        )


async def _check_token(request: Request, session: Session) -> None:
    given = request.headers.get(CSRF_HEADER)
    if given is None:
        field = (await request.form()).get(CSRF_FIELD)
        given = field if isinstance(field, str) else ""
    if not hmac.compare_digest(given.encode("utf-8", "replace"), session.csrf.encode()):
        raise Problem(
            403, "invalid_csrf_token", "the form is of another log-in, or was not made here; load its page again"
        )
