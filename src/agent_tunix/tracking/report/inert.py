"""JSON that can stand inside a page and do nothing there."""

import json
from typing import Any


def to_inert_json(value: Any) -> str:
    """JSON for `<script type="application/json">`: without `<`, nothing in it ends the element or begins another.

    Half a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").encode("utf-8", "replace").decode("utf-8")
