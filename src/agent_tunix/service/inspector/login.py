"""Login with a key of the store, and logout."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import FastAPI, Form, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agent_tunix.errors import AccessDeniedError
from agent_tunix.service.inspector.access import check_origin, find_session, sessions_of
from agent_tunix.service.inspector.pages import add_page, render
from agent_tunix.service.middleware import COOKIE
from agent_tunix.service.state import service_of
from agent_tunix.web.problems import Json

HOME = "/runs"
_LONGEST_PLACE = 2000


async def ask(request: Request, next: Annotated[str, Query()] = HOME) -> Response:
    """Show the login form; a logged-in user is redirected to the page they wanted."""
    place = own_place(next)
    if await find_session(request) is not None:
        return RedirectResponse(place, 303)
    return render(request, "login.html", next=place, problem="")


async def status(request: Request) -> Response:
    """Return JSON that tells if the user is logged in.

    The same-site cookie is missing from a request that follows a link of another site. The form's script therefore asks
    here and then continues to the linked page.
    """
    return Json({"is_logged_in": await find_session(request) is not None})


async def log_in(request: Request, key: Annotated[str, Form()] = "", next: Annotated[str, Form()] = HOME) -> Response:
    """Start a session with a key's secret."""
    check_origin(request)
    service = service_of(request)
    place = own_place(next)
    try:
        found = await service.calls.read(service.store.keys.authenticate, key.strip())
    except AccessDeniedError as error:
        return render(request, "login.html", 401, next=place, problem=str(error))
    _end(request)
    token, _ = sessions_of(request).open(found)
    response = RedirectResponse(place, 303)
    response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=_is_secure(request))
    return response


async def log_out(request: Request) -> Response:
    """End the session."""
    _end(request)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=_is_secure(request))
    return response


def own_place(wanted: str) -> str:
    """Return the page to show after login: the wanted one if it is on this site, else the first page.

    >>> own_place("/runs/run_a?x=1"), own_place("//evil.example"), own_place("https://evil.example/runs")
    ('/runs/run_a?x=1', '/runs', '/runs')
    """
    plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted and len(wanted) <= _LONGEST_PLACE
    if not plain or not wanted.startswith("/") or wanted.startswith(("//", "/login", "/logout")):
        return HOME
    parts = urlsplit(wanted)
    return HOME if parts.scheme or parts.netloc else wanted


def _end(request: Request) -> None:
    token = request.cookies.get(COOKIE)
    if token:
        sessions_of(request).end(token)


def _is_secure(request: Request) -> bool:
    """Return True if the browser used HTTPS, to this server or to a proxy in front of it."""
    forwarded, _, _ = request.headers.get("x-forwarded-proto", "").partition(",")  # the first of several proxies
    return "https" in (request.url.scheme, forwarded.strip().lower())


async def home() -> Response:
    """Redirect to the first page."""
    return RedirectResponse(HOME, 303)


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
    add_page(app, "/", home, scopes=None)
    add_page(app, "/login", ask, scopes=None)
    add_page(app, "/login", log_in, scopes=None, method="POST")
    add_page(app, "/login/status", status, scopes=None)
    add_page(app, "/logout", log_out, scopes=(), method="POST")
