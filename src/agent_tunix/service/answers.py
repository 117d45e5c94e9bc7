"""JSON responses."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from agent_tunix.service.problems import Problem


class Json(Response):
    """JSON response that is not validated: the code that makes it is ours, and `api.models` documents it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return ASCII bytes; escaping keeps a lone surrogate in a text from raising an error."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Json:
    """Return the response that reports a problem."""
    return Json(problem.to_data(), problem.status, {**problem.headers, **(headers or {})})
