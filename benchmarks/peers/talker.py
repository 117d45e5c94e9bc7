"""An environment that answers every turn with the same text."""

from typing import Any


class Talker:
    """Environment whose episodes never end.

    Args:
        reply: The text.
    """

    def __init__(self, reply: str) -> None:
        self.reply = reply

    def reset(self, **row: Any) -> str:
        """Begin without a text."""
        return ""

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Answer."""
        return self.reply, 0.0, False, {}
