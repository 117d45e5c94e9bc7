"""Access control of pages.

Every request is checked again: its session, the session's key in the store, and the key's scopes. A request that
changes something must also come from a page of this site: it carries the session's CSRF token, and its origin headers,
if any, name this site.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from agent_tunix.errors import NotStoredError
from agent_tunix.service.middleware import COOKIE
from agent_tunix.service.state import service_of
from agent_tunix.store import Key
from agent_tunix.web.problems import Problem

LIFETIME_S = 12 * 3600.0
MOST_OF_A_KEY = 32


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a logged-in browser."""

    key: Key
    csrf: str  # token that forms and scripts must send with every change
    ends_at: float  # end, by the clock of `Sessions`

    def may(self, scope: str) -> bool:
        """Return True if the session's key has a scope."""
        return scope in self.key.scopes


class Sessions:
    """Sessions of a server, in memory; not thread-safe. If a key has too many, its oldest session ends.

    The browser holds a session's token; the server stores only its hash, so a leak of its memory opens no session.

    `lifetime_s` counts from the login, not from the last use. `clock` returns seconds since any fixed moment.
    """

    def __init__(
        self,
        lifetime_s: float = LIFETIME_S,
        most_of_a_key: int = MOST_OF_A_KEY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._most_of_a_key = most_of_a_key
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # oldest first, so the next to end is first

    def open(self, key: Key) -> tuple[str, Session]:
        """Start a session, and return it with its token, which is not stored."""
        self._drop_ended()
        mine = [digest for digest, session in self._sessions.items() if session.key.id == key.id]
        for digest in mine[: max(0, len(mine) + 1 - self._most_of_a_key)]:
            del self._sessions[digest]
        token = secrets.token_urlsafe(32)
        session = Session(key, secrets.token_urlsafe(32), self._clock() + self._lifetime_s)
        self._sessions[_digest(token)] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if there is none or it has ended."""
        self._drop_ended()
        return self._sessions.get(_digest(token))

    def end(self, token: str) -> None:
        """End the session of a token, if there is one."""
        self._sessions.pop(_digest(token), None)

    def __len__(self) -> int:
        self._drop_ended()
        return len(self._sessions)

    def _drop_ended(self) -> None:
        now = self._clock()
        while self._sessions and next(iter(self._sessions.values())).ends_at <= now:
            self._sessions.popitem(last=False)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


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
        service_of(request).buckets.admit(session.key.id, session.key.name)
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
