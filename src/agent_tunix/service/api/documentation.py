"""The OpenAPI document, with all errors that a request may get."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from agent_tunix.service.api.models import ErrorResponse

# Error statuses of any request, of one with a body, and of one for a function or a run.
ANY = (400, 401, 403, 408, 429, 500, 503)
BODY = (413, 415)
FUNCTION = (404,)

_SCHEME = "key"
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
_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string"}, "description": "The number of the request in the log"}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait before the next attempt"}}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation: the given statuses and those that any request may get."""
    return {
        status: {
            "model": ErrorResponse,
            "description": _DESCRIPTIONS[status],
            "headers": _RETRY_AFTER if status in (429, 503) else {},
        }
        for status in sorted({*ANY, *statuses})
    }


def make_document(app: FastAPI) -> dict[str, Any]:
    """Return the app's OpenAPI document, which is made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operation in (operation for path in document["paths"].values() for operation in path.values()):
            operation["responses"].pop("422", None)  # FastAPI's own; here invalid requests get 400
            for response in operation["responses"].values():
                response["headers"] = _REQUEST_ID | response.get("headers", {})
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        document["components"]["securitySchemes"] = {
            _SCHEME: {"type": "http", "scheme": "bearer", "description": "A key of `agent-tunix keys create`: `vk_…`"}
        }
        document["security"] = [{_SCHEME: []}]
        app.openapi_schema = document
    return app.openapi_schema
