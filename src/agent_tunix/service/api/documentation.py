"""Descriptions of the API for its OpenAPI document."""

from typing import Any

from agent_tunix.web.documentation import error_responses

# Error statuses of any request, of one with a body, and of one for a function or a run.
ANY = (400, 401, 403, 408, 429, 500, 503)
BODY = (413, 415)
FUNCTION = (404,)

KEY = "A key of `agent-tunix keys create`: `vk_…`"
_DESCRIPTIONS = {
    400: "The request is invalid or cannot be fulfilled",
    401: "The key is missing, not valid, or revoked",
    403: "The key lacks the scope: `read` to list and get, `write` to upload and delete, `try` to try functions",
    404: "There is no such reward function or run",
    408: "The request did not arrive in time",
    409: "The name belongs to another key",
    413: "The body or the file is too large",
    415: "The body has the wrong type, or is compressed",
    429: "The key makes too many requests, or too many keys that are not valid came from this address",
    500: "The server failed; its log has the reason under the request's id",
    503: "The server is overloaded, its store is unavailable, or it cannot isolate the code to run",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation: the given statuses and those that any request may get."""
    return error_responses((*ANY, *statuses), _DESCRIPTIONS)
