"""An agent of an episode, as rewards, metrics and reports see it."""

from typing import Any

AGENT: dict[str, Any] = {
    "outcome": "ok",
    "main_row": 1,
    "calls": [
        {
            "prompt": 20,
            "sampled": 5,
            "cached": 0,
            "needed": 20,
            "row": 0,
            "parent": None,
            "cause": "",
            "first_difference": "",
            "finish_reason": "stop",
            "seconds": 0.5,
            "reply": "<think>first</think>",
        },
        {
            "prompt": 30,
            "sampled": 5,
            "cached": 4,
            "needed": None,
            "row": None,
            "parent": None,
            "cause": "",
            "first_difference": "",
            "finish_reason": "cancelled",
            "seconds": 0.25,
            "reply": "gone",
        },
        {
            "prompt": 24,
            "sampled": 2,
            "cached": 20,
            "needed": 4,
            "row": 1,
            "parent": 0,
            "cause": "dropped",
            "first_difference": "after 'x': '<think>' became '4'",
            "finish_reason": "stop",
            "seconds": 0.125,
            "reply": "4\nwell",
        },
    ],
}
# An agent whose only call begins and ends its only row.
ONE_CALL: dict[str, Any] = {"outcome": "timeout", "main_row": 0, "calls": AGENT["calls"][:1]}
