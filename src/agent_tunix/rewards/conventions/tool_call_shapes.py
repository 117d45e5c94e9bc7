"""Shapes in which libraries give rewards and chat templates the tool calls of a message.

A transcript has OpenAI's shape: `{"id", "type": "function", "function": {"name", "arguments"}}`, with `arguments` as
JSON text.

| library | shape |
| --- | --- |
| transformers, TRL | `arguments` is a mapping |
| verifiers | objects with attributes and items: `call.function.name`, `call["function"]["name"]`, and `call.name` |
| ms-swift | none: the calls stand in the text of the turn, as Hermes writes them |
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_Message = Mapping[str, Any]


def with_text_arguments(messages: Iterable[_Message]) -> list[dict[str, Any]]:
    """Return the messages with the arguments of their calls as JSON text, as OpenAI's API gives them."""
    return [_with_arguments(message, _as_text) for message in messages]


def with_mapping_arguments(messages: Iterable[_Message]) -> list[dict[str, Any]]:
    """Return the messages with the arguments of their calls as mappings, as transformers and TRL give them."""
    return [_with_arguments(message, _as_mapping) for message in messages]


class AttributeDict(dict[str, Any]):
    """A mapping whose items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class _AssistantMessage(AttributeDict):
    """A message whose attribute `tool_calls` is None without calls, as in verifiers."""

    tool_calls = None


def with_call_objects(messages: Iterable[_Message]) -> list[dict[str, Any]]:
    """Return the messages and their calls as objects that can be read as in any version of verifiers.

    Older versions give OpenAI's objects or dicts, and newer ones calls with `name` and `arguments`.
    """
    shaped: list[dict[str, Any]] = []
    for message in with_text_arguments(messages):
        if message.get("tool_calls"):
            message["tool_calls"] = [
                AttributeDict({**call, **call["function"], "function": AttributeDict(call["function"])})
                for call in message["tool_calls"]
            ]
            shaped.append(AttributeDict(message))
        else:
            shaped.append(_AssistantMessage(message) if message["role"] == "assistant" else AttributeDict(message))
    return shaped


def with_written_calls(messages: Iterable[_Message]) -> list[dict[str, Any]]:
    """Return the messages with their calls in the text of the turn, as Hermes and ms-swift write them."""
    shaped = []
    for message in with_mapping_arguments(messages):
        calls = [
            f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False, default=str)}\n</tool_call>"
            for call in message.pop("tool_calls", None) or ()
        ]
        shaped.append(
            {**message, "content": "\n".join(filter(None, [message.get("content"), *calls]))} if calls else message
        )
    return shaped


def _with_arguments(message: _Message, convert: Callable[[Any], Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return dict(message)
    calls = [
        {**call, "function": {**call["function"], "arguments": convert(call["function"].get("arguments"))}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _as_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _as_mapping(arguments: Any) -> Any:
    """Return the mapping; a text that is no JSON object stays."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
