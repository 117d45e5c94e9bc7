"""Rendering of templates, routes of pages, and error responses: a page for browsers, the API's JSON otherwise."""

import functools
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from agent_tunix.service.gate import is_api
from agent_tunix.service.inspector import formats
from agent_tunix.service.inspector.access import CSRF_FIELD, requires, session_of
from agent_tunix.version import __version__
from agent_tunix.web.problems import Problem, answer_problem


def render(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page from a file in `templates/`, which extends `layout.html`; all inserted values are escaped.

    Templates get the session of the request as `session` (None without a login), its CSRF token as `csrf`, the function
    `may` that tests for a scope, `path`, and the names in `context`. An undefined name is an error.
    """
    session = session_of(request)
    given = {
        "session": session,
        "csrf": session.csrf if session else "",
        "csrf_field": CSRF_FIELD,
        "may": session.may if session else _nothing,
        "path": request.url.path,
        "version": __version__,
    }
    text = environment().get_template(template).render(given | context)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def _nothing(scope: str) -> bool:
    return False


@functools.cache
def environment() -> jinja2.Environment:
    """Return the Jinja environment of the templates."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("agent_tunix.service.inspector", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= formats.FILTERS
    return environment


def add_page(
    app: FastAPI,
    path: str,
    endpoint: Callable[..., Any],
    scopes: Sequence[str] | None = ("read",),
    method: str = "GET",
) -> None:
    """Add a page, or an endpoint of its form or script, to an app.

    The user's key must have all `scopes`; None needs no login. `endpoint` is a function in FastAPI's form.
    """
    dependencies = [] if scopes is None else [requires(*scopes)]
    app.add_api_route(
        path,
        endpoint,
        methods=["GET", "HEAD"] if method == "GET" else [method],
        dependencies=dependencies,
        include_in_schema=False,
        response_model=None,
    )


_TITLES = {
    400: "Invalid request",
    401: "Please log in",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed here",
    408: "Too slow",
    409: "Taken",
    413: "Too large",
    415: "Invalid request",
    429: "Too many requests",
    500: "The server failed",
    503: "Not available at the moment",
}


def wants_page(scope: Scope) -> bool:
    """Return True if a request comes from a browser, not from a program or a page's script."""
    accept = Request(scope).headers.get("accept", "")
    return not is_api(scope["path"]) and "text/html" in accept


def answer(scope: Scope, problem: Problem) -> Response:
    """Return the response that reports a problem; page requests without a login are redirected to the login."""
    if not wants_page(scope):
        return answer_problem(problem)
    request = Request(scope)
    if problem.code == "not_logged_in" and scope["method"] in ("GET", "HEAD"):
        wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?{urlencode({'next': wanted})}", 303)
    message = problem.message
    if problem.code == "path_not_found":
        message = "The address may be mistyped, or the page no longer exists."
    page = render(
        request,
        "error.html",
        problem.status,
        title=_TITLES.get(problem.status, "The request failed"),
        http_status=problem.status,
        message=message,
        request_id=getattr(request.state, "request_id", ""),
    )
    page.headers.update(problem.headers)
    return page
