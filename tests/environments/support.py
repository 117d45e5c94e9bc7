"""Policies and environments that tests of this room share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_tunix.environments import EnvironmentAdapter, Message, ToolCall, render_calls, resolve_environment

GALLERY = Path(__file__).parent / "gallery"


def script(*turns: str) -> Callable[[list[Message]], str]:
    """Return a policy that writes these turns."""
    left = iter(turns)
    return lambda messages: next(left)


def call(name: str, **arguments: Any) -> str:
    """Return the text of a turn with one call."""
    return render_calls([ToolCall(name, arguments)], "hermes")


def from_gallery(place: str, **args: Any) -> EnvironmentAdapter:
    """Return an environment of the gallery, such as `text/gym.py:Echo`."""
    return resolve_environment(place, args=args, working_directory=GALLERY)


def texts(messages: list[Message], role: str) -> list[str]:
    return [message["content"] for message in messages if message["role"] == role]
