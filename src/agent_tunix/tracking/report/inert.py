"""JSON that is safe inside an HTML page."""

import json
from typing import Any


def to_inert_json(value: Any) -> str:
    """Return JSON for `<script type="application/json">`; without `<`, it cannot end the element or start another.

    Half a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").encode("utf-8", "replace").decode("utf-8")
