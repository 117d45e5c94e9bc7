"""Handlers that turn FastAPI's errors into problems of the API."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from agent_tunix.web.problems import Problem

_PLACES = ("body", "query", "path", "header", "cookie")
_MOST_TOLD = 300


def add_handlers(app: FastAPI, answer: Callable[[Scope, Problem], Response]) -> None:
    """Make an app answer FastAPI's own errors with the response that `answer` returns."""

    async def not_valid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return answer(request.scope, _of_validation(error.errors()))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer(request.scope, _of_http(request, error))

    app.add_exception_handler(RequestValidationError, not_valid)
    app.add_exception_handler(HTTPException, refused)


def _of_validation(errors: Sequence[Any]) -> Problem:
    """Return the problem for the first validation error."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return Problem(400, "invalid_json", f"the body is not JSON: {first['ctx']['error']}")
    where = [str(part) for part in first["loc"] if part not in _PLACES]
    param = ".".join(where) or None
    if first["type"] == "missing":
        return Problem(400, "missing_parameter", f"{param or 'the body'} is missing", param)
    code = f"invalid_{where[0]}" if where else "invalid_body"
    return Problem(400, code, f"{param or 'the body'}: {first['msg']}"[:_MOST_TOLD], param)


def _of_http(request: Request, error: HTTPException) -> Problem:
    path = request.url.path
    if error.status_code == 404:
        return Problem(404, "path_not_found", f"there is no resource at {path}; see /openapi.json for those there are")
    if error.status_code == 405:
        allowed = sorted(_methods_of(request))
        return Problem(
            405,
            "method_not_allowed",
            f"{request.method} is not allowed for {path}; use {', '.join(allowed)}",
            headers={"Allow": ", ".join(allowed)},
        )
    if error.status_code == 400:
        return Problem(400, "malformed_body", f"the body cannot be read: {error.detail}")
    return Problem(error.status_code, "refused", str(error.detail), headers=error.headers)


def _methods_of(request: Request) -> set[str]:
    """Return the HTTP methods that any route of a path supports."""
    methods: set[str] = set()
    for route in request.app.router.routes:
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            methods |= set(getattr(route, "methods", None) or ())
    return methods
