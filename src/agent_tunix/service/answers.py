"""Answers in JSON."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from agent_tunix.service.problems import Problem


class Json(Response):
    """JSON, written without another look at it: what it is made of is known, and documented in `api.models`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Escaped to ASCII, so that half a surrogate in a text cannot stop it."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def answer_problem(problem: Problem, headers: Mapping[str, str] | None = None) -> Json:
    """The answer that tells of a problem."""
    return Json(problem.to_data(), problem.status, {**problem.headers, **(headers or {})})
