"""Declarations of tools, for chat templates that do not declare them, and calls as a model would write them."""

import json
import keyword
from collections.abc import Sequence
from typing import Any

from agent_tunix.environments.tool_calls import ToolCall, ToolCallFormat
from agent_tunix.environments.tools import Tool

_FORMS = {
    ToolCallFormat.HERMES: '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>',
    ToolCallFormat.QWEN_XML: (
        "<tool_call>\n<function=NAME>\n<parameter=ARGUMENT>\nVALUE\n</parameter>\n</function>\n</tool_call>"
    ),
    ToolCallFormat.LLAMA3: '{"name": NAME, "parameters": {ARGUMENT: VALUE}}',
    ToolCallFormat.GEMMA: "```tool_code\nNAME(ARGUMENT=VALUE)\n```",
    ToolCallFormat.OLMO3: "<function_calls>NAME(ARGUMENT=VALUE)</function_calls>",
}

# Texts of chat templates that show the format of tool calls, the first that a template has deciding.
_SIGNS = {
    "<function=": ToolCallFormat.QWEN_XML,
    "<function_calls>": ToolCallFormat.OLMO3,
    "<tool_call>": ToolCallFormat.HERMES,
    "<|python_tag|>": ToolCallFormat.LLAMA3,
    "<|start_header_id|>": ToolCallFormat.LLAMA3,
    "<start_of_turn>": ToolCallFormat.GEMMA,
    "tool_code": ToolCallFormat.GEMMA,
}


def render_declarations(tools: Sequence[Tool], call_format: ToolCallFormat | str) -> str:
    """Return a block for the system message that declares tools; "" if there are none."""
    if not tools:
        return ""
    lines = [json.dumps(tool.declaration()["function"], ensure_ascii=False) for tool in tools]
    return "\n".join(
        ["You may call these tools:", *lines, "", "To call a tool, write:", _FORMS[ToolCallFormat(call_format)]]
    )


def render_calls(calls: Sequence[ToolCall], call_format: ToolCallFormat | str) -> str:
    """Return the text of a turn that makes these calls.

    `parse_turn` reads it, unless an argument contains the text that ends a call or an argument in the format: three
    backticks for `gemma`, `</function_calls>` for `olmo3`, `</parameter>` for `qwen_xml`.
    """
    kind = ToolCallFormat(call_format)
    if kind in (ToolCallFormat.GEMMA, ToolCallFormat.OLMO3):
        is_python = all(map(_has_python_names, calls))
        entries = [{"name": call.name, "parameters": call.arguments} for call in calls]
        text = "\n".join(map(_as_python, calls)) if is_python else json.dumps(entries, ensure_ascii=False)
        if kind is ToolCallFormat.OLMO3:
            return f"<function_calls>{text}</function_calls>"
        return f"```{'tool_code' if is_python else 'json'}\n{text}\n```"
    divider = "; " if kind is ToolCallFormat.LLAMA3 else "\n"
    return divider.join(_render_call(call, kind) for call in calls)


def format_of_template(template: str) -> ToolCallFormat:
    """Return the format of tool calls in a chat template; `hermes` if the template shows none."""
    return next((call_format for sign, call_format in _SIGNS.items() if sign in template), ToolCallFormat.HERMES)


def sign_of_format(template: str) -> str:
    """Return the text of a chat template that shows the format of tool calls; "" if it has none."""
    return next((sign for sign in _SIGNS if sign in template), "")


def _render_call(call: ToolCall, kind: ToolCallFormat) -> str:
    if kind is ToolCallFormat.QWEN_XML:
        parameters = "".join(
            f"<parameter={key}>\n{_as_written(value)}\n</parameter>\n" for key, value in call.arguments.items()
        )
        return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"
    key = "parameters" if kind is ToolCallFormat.LLAMA3 else "arguments"
    text = json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False)
    return text if kind is ToolCallFormat.LLAMA3 else f"<tool_call>\n{text}\n</tool_call>"


def _as_python(call: ToolCall) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _has_python_names(call: ToolCall) -> bool:
    return all(name.isidentifier() and not keyword.iskeyword(name) for name in (call.name, *call.arguments))


def _as_written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
