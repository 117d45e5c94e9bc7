"""Rendering of templates, and routes of pages."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jinja2
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse

from agent_tunix import __version__
from agent_tunix.service.inspector import formats
from agent_tunix.service.inspector.access import CSRF_FIELD, requires, session_of


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
