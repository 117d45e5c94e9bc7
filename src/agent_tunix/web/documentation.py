"""The OpenAPI document of a server, with all errors that a request may get."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from agent_tunix.web.models import ErrorResponse

_SCHEME = "key"
_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string"}, "description": "The number of the request in the log"}}
_RETRY_AFTER = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait before the next attempt"}}


def error_responses(statuses: Iterable[int], descriptions: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation, as FastAPI takes them."""
    return {
        status: {
            "model": ErrorResponse,
            "description": descriptions[status],
            "headers": _RETRY_AFTER if status in (429, 503) else {},
        }
        for status in sorted(set(statuses))
    }


def make_document(app: FastAPI, key: str) -> dict[str, Any]:
    """Return the app's OpenAPI document, which is made once; `key` describes the keys."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operation in (operation for path in document["paths"].values() for operation in path.values()):
            operation["responses"].pop("422", None)  # FastAPI's own; here invalid requests get 400
            for response in operation["responses"].values():
                response["headers"] = _REQUEST_ID | response.get("headers", {})
        schemas = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        scheme = {"type": "http", "scheme": "bearer", "description": key}
        document["components"]["securitySchemes"] = {_SCHEME: scheme}
        document["security"] = [{_SCHEME: []}]
        app.openapi_schema = document
    return app.openapi_schema
