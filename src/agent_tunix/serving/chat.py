"""Conversations and token ids.

A request whose messages begin with those of an earlier call and the reply that it got continues the token ids of that
call: nothing is encoded twice. Clients change messages a little when they send them back: they drop fields, add empty
ones, and write the JSON of arguments in another way. So messages are compared by what they say.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.data.dropped import RowError
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.prompts import fold_system
from agent_tunix.data.tool_schemas import read_tools
from agent_tunix.environments import ToolCall, ToolCallFormat, parse_turn
from agent_tunix.environments.tools import DeclaredTool
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.web.problems import Problem

Message = Mapping[str, Any]

_ROLES = ("system", "user", "assistant", "tool")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation as the server read it.

    Attributes:
        messages: Messages with text content; calls have their arguments as JSON text.
        tools: Tools that the policy may call.
        declarations: The tools in OpenAI's form.
        reads_calls: False to leave calls in the text of the reply (`tool_choice: none`).
    """

    messages: Sequence[Message]
    tools: Sequence[DeclaredTool] = ()
    declarations: Sequence[Mapping[str, Any]] = ()
    reads_calls: bool = True


def read_conversation(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, tool_choice: str | None = None
) -> ChatPrompt:
    """Return the conversation of a request in OpenAI's form.

    Raises:
        Problem: A message or a tool is not of this form, or has something other than text.
    """
    read_messages: list[Message] = []
    names: dict[str, str] = {}  # id of a call → the tool's name
    for place, message in enumerate(messages):
        try:
            read = _read_message(message, names)
        except ValueError as error:
            raise Problem(400, "invalid_messages", f"messages[{place}]: {error}", "messages") from None
        names |= {call["id"]: call["function"]["name"] for call in read.get("tool_calls", ()) if "id" in call}
        read_messages.append(read)
    read_tools = [_read_tool(tool) for tool in _declared(tools or ())]
    declarations = [tool.declaration() for tool in read_tools]
    return ChatPrompt(read_messages, read_tools, declarations, bool(read_tools) and tool_choice != "none")


class ChatEncoder:
    """Conversion of conversations to token ids, and of replies to messages."""

    def __init__(self, encoder: EpisodeEncoder) -> None:
        self._encoder = encoder

    @property
    def call_format(self) -> ToolCallFormat:
        """The format in which calls of tools are read."""
        return self._encoder.call_format

    def encode(self, conversation: ChatPrompt, calls: Sequence[RecordedCall] = ()) -> tuple[int, ...]:
        """Return the token ids of the prompt.

        Args:
            conversation: The conversation.
            calls: Earlier calls. If the conversation continues one of them, its token ids are kept as they are.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        call = find_continued(calls, conversation)
        if call is None:
            messages = [dict(message) for message in conversation.messages]
            if not self._encoder.has_system_role and any(message["role"] == "system" for message in messages):
                messages = fold_system(messages)
            return tuple(self._encoder.encode_prompt(messages, conversation.tools))
        new_messages = [dict(message) for message in conversation.messages[len(call.messages) + 1 :]]
        written = (*call.prompt, *call.tokens)
        return (*written, *self._encoder.encode_replies([new_messages], [written[-1]])[0])

    def read_reply(self, text: str, conversation: ChatPrompt, ids: Iterable[int]) -> dict[str, Any]:
        """Return the assistant's message for the text of a reply.

        Args:
            text: The text, without stop strings.
            conversation: The conversation that it continues.
            ids: Token ids of the prompt and the reply, from which the ids of calls follow. So equal seeds give equal
                ids.
        """
        if not conversation.reads_calls:
            return {"role": "assistant", "content": text}
        turn = parse_turn(text, self.call_format, conversation.tools)
        calls = [call for call in turn.calls if isinstance(call, ToolCall)]
        if not calls:
            return {"role": "assistant", "content": text}
        digest = hashlib.blake2b(repr(tuple(ids)).encode(), digest_size=10).hexdigest()
        return {
            "role": "assistant",
            "content": turn.content or None,
            "tool_calls": [_openai_call(call, f"call_{digest}{number:02}") for number, call in enumerate(calls)],
        }


def find_continued(calls: Sequence[RecordedCall], conversation: ChatPrompt) -> RecordedCall | None:
    """Return the call that a conversation continues with new messages; None if it continues none.

    Of several, the one with the most messages counts; of those, one whose reply has the same ids of calls; of those,
    the last.
    """
    messages, best, best_rank = conversation.messages, None, (0, False)
    for call in calls:
        length = len(call.messages)
        if call.reply is None or length + 1 >= len(messages) or length < best_rank[0]:
            continue
        reply = messages[length]
        rank = (length, _ids(reply) == _ids(call.reply))
        if (
            rank >= best_rank
            and is_same(call.reply, reply)
            and list(call.tools) == list(conversation.declarations)
            and not any(message["role"] == "assistant" for message in messages[length + 1 :])
            and all(map(is_same, call.messages, messages))
        ):
            best, best_rank = call, rank
    return best


def is_same(message: Message, other: Message) -> bool:
    """Return True if two messages say the same.

    White space around what the assistant says may differ, as may the way in which the JSON of arguments is written.
    """
    return _said(message) == _said(other)


def _said(message: Message) -> tuple[Any, ...]:
    content = message.get("content") or ""
    calls = [
        (call["function"]["name"], _value(call["function"]["arguments"])) for call in message.get("tool_calls") or ()
    ]
    return message["role"], content.strip() if message["role"] == "assistant" else content, calls


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _ids(message: Message) -> list[Any]:
    return [call.get("id") for call in message.get("tool_calls") or ()]


def _openai_call(call: ToolCall, call_id: str) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


# --- reading of requests ----------------------------------------------------------------------------------------------


def _read_message(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a message with what a chat template reads; raise ValueError with what is wrong with it."""
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in _ROLES:
        raise ValueError(f"the role must be one of developer, {', '.join(_ROLES)}, not {role!r:.80}")
    calls = message.get("tool_calls") or []
    content = message.get("content")
    if content is None and role != "assistant":
        raise ValueError("it has no content")
    read: dict[str, Any] = {"role": role, "content": _read_content(content)}
    if calls:
        if role != "assistant" or not isinstance(calls, list):
            raise ValueError("tool_calls must be a list in a message of the assistant")
        read["tool_calls"] = [_read_call(call) for call in calls]
    if role == "tool":
        name = message.get("name") or names.get(str(message.get("tool_call_id")))
        read |= {"name": name} if isinstance(name, str) else {}
    return read


def _read_content(content: Any) -> str:
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, Mapping) else type(part).__name__ for part in content]
        if others := [kind for kind in kinds if kind not in ("text", "refusal")]:
            raise ValueError(f"content must be text, not {others[0]!r:.80}")
        texts = [part.get(kind) for part, kind in zip(content, kinds, strict=True)]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(map(str, texts))
    elif content is None or isinstance(content, str):
        return content or ""
    raise ValueError(f"content must be a text or a list of texts, not {content!r:.80}")


def _read_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, Mapping) else (0, 0)
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise ValueError(f"a tool call must have a function with a name and arguments as JSON text, not {call!r:.80}")
    if not isinstance(_value(arguments), dict):
        raise ValueError(f"the arguments of the tool call {name!r:.80} must be a JSON object, not {arguments!r:.80}")
    read = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return {"id": call["id"], **read} if isinstance(call.get("id"), str) else read


def _declared(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    try:
        return read_tools({"tools": list(tools)})
    except RowError as error:
        raise _bad_tool(f"{error.reason}: {error.detail}") from None


def _read_tool(declaration: Mapping[str, Any]) -> DeclaredTool:
    function = declaration["function"]
    name, description = function["name"], function.get("description") or ""
    parameters = function.get("parameters") or {}
    if declaration.get("type") != "function" or not _TOOL_NAME.fullmatch(name):
        raise _bad_tool(f"{name!r:.80} must be a function whose name has letters, digits and _ only")
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("properties") or {}, Mapping):
        raise _bad_tool(f"the parameters of {name} must be a JSON schema of an object")
    if not isinstance(description, str):
        raise _bad_tool(f"the description of {name} must be a text")
    return DeclaredTool(name, description, parameters)


def _bad_tool(message: str) -> Problem:
    return Problem(400, "invalid_tools", f"tools: {message}", "tools")
