"""Error responses: a page for browsers, the API's JSON for everything else."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from agent_tunix.service.gate import is_api
from agent_tunix.service.inspector.pages import render
from agent_tunix.service.problems import Problem, answer_problem

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
