"""Tools and tool calls of a row, in the layouts that transformers, TRL and ms-swift accept.

| layout of the column `tools` | example |
| --- | --- |
| OpenAI's objects | `[{"type": "function", "function": {"name": "add", "parameters": {…}}}]` |
| functions alone | `[{"name": "add", "parameters": {…}}]`, also with `"type": "function"` |
| ms-swift's names | `[{"name_for_model": "add", "description_for_model": "…", "parameters": {…}}]` |
| text of any of these | `'[{"name": "add"}]'`, `['{"name": "add"}']`, or `"parameters"` as text |

A text is JSON, or as ms-swift also reads it, a Python literal. Other layouts are refused by name.
"""

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_tunix.data.dropped import RowError

# Column of a row with declarations of tools, as chat templates take them.
TOOLS_COLUMN = "tools"
_UNREADABLE = object()
# Keys of a tool that no chat template reads → the layout that has them.
_OTHER_LAYOUTS = {
    "input_schema": "Anthropic's layout",
    "inputSchema": "MCP's layout",
    "function_declarations": "Gemini's layout",
    "functionDeclarations": "Gemini's layout",
}
_SWIFT_NAMES = {"name_for_model": "name", "description_for_model": "description"}
_REMEDY = "write OpenAI's objects, or rename a column with other content"


def read_tools(columns: Mapping[str, Any], *, is_padded: bool = False) -> list[dict[str, Any]]:
    """Return the declarations of tools in a row's column `tools` as OpenAI's objects; empty without any.

    Args:
        columns: Columns of the row.
        is_padded: True if nested values of the row may have nulls that its author did not write; see `Row`.

    Raises:
        RowError: The column holds something else.
    """
    declarations = columns.get(TOOLS_COLUMN)
    tools = _parsed(declarations)
    if tools is _UNREADABLE:
        raise _refused("text that is neither JSON nor a Python literal", declarations)
    if tools is None or tools in ({}, [], ()):
        return []
    if isinstance(tools, Mapping):
        tools = [tools]
    if not isinstance(tools, list | tuple):
        raise _refused(f"{type(tools).__name__} instead of a list", declarations)
    # What was written as text inside a padded row has no padding.
    padded = is_padded and not isinstance(declarations, str)
    return [_declaration(tool, padded) for tool in tools]


def from_swift_roles(messages: Iterable[Any]) -> list[Any]:
    """Return messages with ms-swift's roles `tool_call` and `tool_response` as tool calls and results.

    Calls side by side are the calls of one turn. Everything else stays as it is.
    """
    conversation: list[Any] = []
    turn: list[Any] | None = None
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        if role != "tool_call":
            turn = None
            conversation.append({**message, "role": "tool"} if role == "tool_response" else message)
            continue
        if turn is None:
            turn = []
            conversation.append({"role": "assistant", "content": "", "tool_calls": turn})
        turn.append(_parsed(message.get("content")))
    return conversation


def read_tool_call(call: Any, column: str, at: str, *, is_padded: bool = False) -> dict[str, Any]:
    """Return a tool call of an earlier message as chat templates take it, with its arguments as a mapping.

    Args:
        call: The call: OpenAI's object, or its function alone.
        column: Name of the column, for error messages.
        at: Place of the message, for error messages.
        is_padded: True if nested values of the row may have nulls that its author did not write; see `Row`.

    Raises:
        RowError: It has no name or no arguments.
    """
    function = call.get("function") or call if isinstance(call, Mapping) else {}
    name, arguments = (
        (function.get(key) for key in ("name", "arguments")) if isinstance(function, Mapping) else ("", "")
    )
    if isinstance(arguments, str):
        arguments = _json_arguments(arguments)
    elif is_padded:
        arguments = _without_nulls(arguments or {})
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise RowError(f"column {column!r} has a tool call without a name and arguments", f"{at}: {call!r:.80}")
    read: dict[str, Any] = {"type": "function", "function": {"name": name, "arguments": dict(arguments)}}
    return {"id": call["id"], **read} if isinstance(call.get("id"), str) else read


def _json_arguments(text: str) -> Any:
    try:
        arguments = json.loads(text)
        json.dumps(arguments, ensure_ascii=False).encode()  # an escape may stand for a lone surrogate
    except (ValueError, RecursionError):
        return None
    return arguments


def _declaration(tool: Any, is_padded: bool) -> dict[str, Any]:
    """Return a tool as OpenAI's object."""
    declaration = _parsed(tool)
    if not isinstance(declaration, Mapping):
        raise _refused("a tool that is no object", tool)
    if is_padded and not isinstance(tool, str):
        declaration = _without_nulls(declaration)
    if layout := next((layout for key, layout in _OTHER_LAYOUTS.items() if key in declaration), None):
        raise _refused(f"a tool in {layout}", tool)
    is_wrapped = isinstance(declaration.get("function"), Mapping)
    function = (
        dict(declaration["function"])
        if is_wrapped
        else {key: value for key, value in declaration.items() if key != "type"}
    )
    for old, new in _SWIFT_NAMES.items():
        if old in function:
            function.setdefault(new, function.pop(old))
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise _refused("a tool without a name", tool)
    if isinstance(function.get("parameters"), str):
        function["parameters"] = _parsed(function["parameters"])
        if not isinstance(function["parameters"], Mapping):
            raise _refused("a tool whose parameters are no object", tool)
    return {"type": "function", **(declaration if is_wrapped else {}), "function": function}


def _parsed(value: Any) -> Any:
    """Return the value of a text, `_UNREADABLE` if it has none; any other value unchanged."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(value.strip())
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return _UNREADABLE


def _without_nulls(value: Any) -> Any:
    """Return a value without the nulls that Arrow writes for absent fields.

    A null `default` stays in a schema that allows null, where it has a meaning.
    """
    if isinstance(value, Mapping):
        allows = _allows_null(value)
        return {
            name: _without_nulls(item)
            for name, item in value.items()
            if item is not None or (name == "default" and allows)
        }
    return [_without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _allows_null(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    options = schema.get("anyOf")
    return "null" in (kinds if isinstance(kinds, list | tuple) else [kinds]) or any(
        isinstance(option, Mapping) and option.get("type") == "null"
        for option in (options if isinstance(options, Sequence) and not isinstance(options, str) else ())
    )


def _refused(what: str, value: Any) -> RowError:
    return RowError(f"the column {TOOLS_COLUMN!r} has {what}; {_REMEDY}", f"{value!r:.80}")
