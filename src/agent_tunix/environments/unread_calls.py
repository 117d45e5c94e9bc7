"""Detection of tool calls in the text of a turn in which none was read, because they have another form.

The forms are those of `ToolCallFormat`, and some others that models write and this package does not read.
"""

import re
from collections.abc import Sequence

from agent_tunix.environments.tool_calls import ToolCall, ToolCallFormat, parse_turn, text_after_thoughts
from agent_tunix.environments.tools import Tool

# Tags that only a call has.
_TAGS = {
    ToolCallFormat.QWEN_XML: re.compile(r"<tool_call>\s*<function="),
    ToolCallFormat.HERMES: re.compile(r"<tool_call>"),
    ToolCallFormat.OLMO3: re.compile(r"<function_calls>(?!\s*<)"),
    ToolCallFormat.LLAMA3: re.compile(r"<\|python_tag\|>"),
    ToolCallFormat.GEMMA: re.compile(r"```tool_(?:code|call)\b"),
}
# Forms that are not read. In place of %TOOL% names of the tools are put.
_OTHER_FORMS = {
    "gemma4": r"<\|tool_call>",
    "mistral": r"\[TOOL_CALLS\]",
    "deepseek": r"<\uff5ctool\u2581calls?\u2581begin\uff5c>",
    "kimi": r"<\|tool_calls?(?:_section)?_begin\|>",
    "anthropic": r"<(?:antml:)?invoke\s+name=",
    "function_tag": r"<function=[^<>\n]+>",
    "react": r"^\s*Action:\s*(?:%TOOL%)\b",
    "json": r"[\"'](?:name|tool|tool_name|function|action)[\"']\s*:\s*[\"'](?:%TOOL%)[\"']",
    "python": r"^[\s\[`]*(?:print\()?(?:\w+\.)?(?:%TOOL%)\(",
    "tag": r"<(?:%TOOL%)>",
}


def find_unread_call(
    text: str, call_format: ToolCallFormat | str, tools: Sequence[Tool], *, is_malformed: bool = False
) -> str:
    """Return the form of a call that the text of a turn seems to contain, "" if there is none.

    Args:
        text: Text of a turn in which `parse_turn` read no call.
        call_format: Format in which `parse_turn` looked for calls.
        tools: Tools of the episode.
        is_malformed: True if `parse_turn` found malformed calls. Then only a call that another format reads counts.
    """
    answer = text_after_thoughts(text)
    names = [tool.name for tool in tools]
    if not answer.strip() or not names:
        return ""
    for form in (one for one in _TAGS if one != call_format):
        calls = parse_turn(answer, form, tools).calls
        is_read = any(isinstance(call, ToolCall) and call.name in names for call in calls)
        if is_read or (not is_malformed and _TAGS[form].search(answer)):
            return str(form)
    if is_malformed:
        return ""
    alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return next(
        (
            form
            for form, pattern in _OTHER_FORMS.items()
            if re.search(pattern.replace("%TOOL%", alternatives), answer, re.MULTILINE)
        ),
        "",
    )
