"""Errors of requests, in the one shape that the API returns, and JSON responses.

{"error": {"type": "not_found_error", "code": "reward_function_not_found", "message": "…", "param": "id"}}
"""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_OTHER_TYPE, _SERVER_TYPE = "invalid_request_error", "server_error"

# Seconds after which a client may retry a request that was refused for lack of capacity.
RETRY_AFTER_S = 1


class Problem(Exception):
    """Request that is answered with an error.

    Attributes:
        message: What was required, what arrived, what to do.
        param: Part of the request at fault; None if there is no single one.
        headers: Extra headers of the response.
    """

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    def to_data(self) -> dict[str, Any]:
        """Return the JSON object of the response."""
        kind = _SERVER_TYPE if self.status >= 500 else TYPES.get(self.status, _OTHER_TYPE)
        return {"error": {"type": kind, "code": self.code, "message": self.message, "param": self.param}}


def internal_error() -> Problem:
    """Return the problem that reports a defect of ours."""
    return Problem(
        500, "internal_error", "the server failed; its log has the reason under the X-Request-Id of this response"
    )


class Json(Response):
    """JSON response that is not validated: the code that makes it is ours, and `api.models` documents it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return ASCII bytes; escaping keeps a lone surrogate in a text from raising an error."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Json:
    """Return the response that reports a problem."""
    return Json(problem.to_data(), problem.status, {**problem.headers, **(headers or {})})
