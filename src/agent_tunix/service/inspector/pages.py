"""How pages are made: a template, and what it is told; and the routes at which they are."""

import functools
from collections.abc import Callable
from typing import Any

import jinja2
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse

from agent_tunix import __version__
from agent_tunix.service.inspector import formats
from agent_tunix.service.inspector.access import CSRF_FIELD, requires, session_of


def render(request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
    """A page.

    Args:
        request: The one it answers; templates get its `session` (None where nobody is logged in), the session's `csrf`
            token, `may` (whether the session's key has a scope), and `path`.
        template: In `templates/`; it extends `layout.html`. Everything that it puts in is escaped.
        status: Of HTTP.
        context: What else the template names; a name that is not there is an error.
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
    """Where the templates are."""
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
    app: FastAPI, path: str, endpoint: Callable[..., Any], scope: str | None = "read", method: str = "GET"
) -> None:
    """Add a page, or what a page's form or script asks for, to an app.

    Args:
        app: The app.
        path: Where.
        endpoint: What answers; as FastAPI has it.
        scope: What the key of who asks must allow; None: nobody need be logged in.
        method: Of HTTP.
    """
    dependencies = [] if scope is None else [requires(scope)]
    app.add_api_route(
        path,
        endpoint,
        methods=["GET", "HEAD"] if method == "GET" else [method],
        dependencies=dependencies,
        include_in_schema=False,
        response_model=None,
    )
