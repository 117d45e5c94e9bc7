"""Token ids of an episode: the prompt with its declarations of tools, and the replies to each turn of the policy.

The policy's own tokens are never encoded again. A reply of a tool or an environment is encoded as the text that the
chat template writes between the end of one turn of the policy and the start of the next. This text is rendered in a
short placeholder conversation. So a template that rewrites earlier turns (Qwen 3 removes earlier thoughts) gives the
same text at every turn.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.prompts import PromptEncoder, fold_system
from agent_tunix.environments import (
    Message,
    Tool,
    ToolCall,
    ToolCallFormat,
    format_of_template,
    parse_turn,
    render_calls,
    render_declarations,
)
from agent_tunix.environments.declarations import sign_of_format
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.rewards.conventions.tool_call_shapes import with_mapping_arguments

_LOGGER = logging.getLogger("agent_tunix.run")
_QUESTION, _TURN, _RESULT = "agent tunix asks", "agent tunix answers", "agent tunix replies"
_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "agent_tunix_probe",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_PROBE = ToolCall("agent_tunix_probe", {})


class EpisodeEncoder:
    """An encoder of the prompts and replies of episodes.

    Args:
        tokenizer: The policy's tokenizer.
        prompt: Configures the prompt.
        eos_ids: Tokens that end a turn; None for those of the tokenizer.
        call_format: `environment.call_format`: a format, or `auto` for that of the chat template.

    Raises:
        ConfigError: Calls in the format cannot be read from what the policy writes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: PromptConfig,
        eos_ids: Sequence[int] | None = None,
        call_format: str = "auto",
    ) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = frozenset(tokenizer.eos_ids if eos_ids is None else eos_ids)
        self._encoder = PromptEncoder(tokenizer, prompt)
        self._configured = None if call_format == "auto" else ToolCallFormat(call_format)
        if self._configured is not None and not self._survives(_render_probe(self._configured), self._configured):
            raise ConfigError(
                f"environment.call_format={self._configured} requires a tokenizer that keeps the tags of the format, "
                "but they are special tokens of this one, which are not decoded; set environment.call_format=auto",
                code="invalid_chat_template",
            )

    @property
    def call_format(self) -> ToolCallFormat:
        """The format in which tool calls are read."""
        return self._choice[0]

    @property
    def format_reason(self) -> str:
        """The reason for `call_format`, for the log."""
        return self._choice[1]

    @property
    def is_guessed_format(self) -> bool:
        """True if nothing shows the format of the model's calls."""
        return self._configured is None and not self._written_call and not sign_of_format(self._template)

    @property
    def has_system_role(self) -> bool:
        """True if the chat template renders a system message."""
        return self._encoder.has_system_role

    def encode_prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[int]:
        """Return the token ids of the prompt of an episode.

        Args:
            messages: The conversation before the policy's first turn.
            tools: Tools to declare: through the template, or, if it has no place for them, in the system message.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        return self._tokenizer.encode_prompts([self.split_prompt(messages, tools)])[0]

    def split_prompt(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[str]:
        """Return the prompt of an episode as text, special token, text, …; see `encode_prompt`."""
        messages = with_mapping_arguments(messages)
        declared = [tool.declaration() for tool in tools] if tools and self._declares_tools else []
        if tools and not declared:
            messages = self._with_declarations(messages, tools)
        return self._encoder.split(messages, declared)

    def encode_replies(self, replies: Sequence[Sequence[Message]], last_tokens: Sequence[int]) -> list[list[int]]:
        """Return, for each of several turns, the token ids between its end and the start of the next turn.

        Args:
            replies: Messages that answer each turn: results of tools, or the environment's reply.
            last_tokens: The last token of each turn. One that a stop string ended has not written the end of its turn.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        parts = [self._split_reply(messages) for messages in replies]
        # The tokens of a text can depend on what precedes it. So the token that ends the policy's turn is encoded too,
        # and then left out if the policy has written it.
        return [
            ids[1:] if of_turn[0] == "" and set(of_turn[1:2]) & self._ends and last in self._eos_ids else ids
            for ids, of_turn, last in zip(self._tokenizer.encode_parts(parts), parts, last_tokens, strict=True)
        ]

    def shorten(self, text: str, max_tokens: int) -> str:
        """Return the text cut to at most `max_tokens` tokens; a note at the end says that it was cut."""
        if len(text.encode("utf-8", "replace")) <= max_tokens:  # a token has at least one byte
            return text
        ids = self._tokenizer.encode(text, allow_special=False)
        if len(ids) <= max_tokens:
            return text
        note = f"\n[cut: {len(ids):,} tokens]"
        num_kept = max(0, max_tokens - len(self._tokenizer.encode(note)))
        return self._tokenizer.decode(ids[:num_kept]).rstrip("\ufffd") + note

    @functools.cached_property
    def _ends(self) -> set[str]:
        """Special tokens that end a turn."""
        return {text for text in self._tokenizer.special_texts if self._tokenizer.encode(text)[0] in self._eos_ids}

    @functools.cached_property
    def _declares_tools(self) -> bool:
        question = [{"role": "user", "content": _QUESTION}]
        try:
            if "agent_tunix_probe" not in self._tokenizer.render_chat(question, [_PROBE_TOOL]):
                return False
        except ModelError:
            return False
        if self._configured is None and not self._reads_calls:
            _LOGGER.warning(
                "the tool calls that the chat template asks for cannot be read: their format is unknown, or the "
                "tokenizer has special tokens for it, which are not decoded. The system message declares the tools in "
                "its place, with calls in the format %s",
                self.call_format,
            )
        return self._configured is not None or self._reads_calls

    @functools.cached_property
    def _choice(self) -> tuple[ToolCallFormat, str]:
        """The format in which tool calls are read, and the reason for it."""
        if self._configured is not None:
            return self._configured, "environment.call_format says so"
        if not self._reads_calls:
            return ToolCallFormat.GEMMA, "calls as the chat template writes them cannot be read"
        if sign := sign_of_format(self._template):
            return self._template_format, f"the chat template has {sign}"
        if self._written_call:
            return self._template_format, "the chat template writes calls so"
        return self._template_format, "the chat template shows no format"

    @functools.cached_property
    def _template(self) -> str:
        return self._tokenizer.chat_template or ""

    @functools.cached_property
    def _template_format(self) -> ToolCallFormat:
        """The format that the template shows, or else one in which a call that it writes is read."""
        if sign_of_format(self._template) or not self._written_call:
            return format_of_template(self._template)
        readable = (one for one in ToolCallFormat if self._survives(self._written_call, one))
        return next(readable, ToolCallFormat.HERMES)

    @functools.cached_property
    def _reads_calls(self) -> bool:
        """True if a call that the template writes, or else one in the template's format, is read back correctly."""
        text = self._written_call or _render_probe(self._template_format)
        return self._survives(text, self._template_format)

    def _survives(self, text: str, call_format: ToolCallFormat) -> bool:
        """Return True if the probe is read in a text that the policy writes; special tokens are not decoded."""
        return _PROBE in parse_turn(self._tokenizer.decode(self._tokenizer.encode(text)), call_format).calls

    @functools.cached_property
    def _written_call(self) -> str:
        """The text that the template writes for a turn with a call; "" if it writes no calls."""
        call = {"type": "function", "function": {"name": _PROBE.name, "arguments": {}}, "id": "call_0"}
        question, turn = _placeholder([])
        try:
            before, _, after = self._tokenizer.render_chat([question, turn]).partition(_TURN)
            text = self._tokenizer.render_chat([question, {"role": "assistant", "content": "", "tool_calls": [call]}])
            text = text.removeprefix(before).removesuffix(after)
        except ModelError:
            return ""
        return text if _PROBE.name in text else ""

    @functools.cached_property
    def _has_tool_role(self) -> bool:
        """True if the template renders results of tools as messages of the role `tool`."""
        try:
            return _RESULT in self._tokenizer.render_chat(_placeholder([{"role": "tool", "content": _RESULT}]))
        except ModelError:
            return False

    def _with_declarations(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
        block = render_declarations(tools, self.call_format)
        new_messages = [dict(message) for message in messages]
        if new_messages[0]["role"] == "system":
            new_messages[0]["content"] = f"{new_messages[0]['content']}\n\n{block}"
        else:
            new_messages.insert(0, {"role": "system", "content": block})
        return new_messages if self._encoder.has_system_role else fold_system(new_messages)

    def _split_reply(self, messages: Sequence[Message]) -> list[str]:
        """Return the parts of the text after the policy's turn. The first special token may end that turn."""
        shown_messages: list[dict[str, Any]] = [
            {key: message[key] for key in ("role", "content", "name") if key in message} for message in messages
        ]
        if not self._has_tool_role:
            results = [message["content"] for message in shown_messages if message["role"] == "tool"]
            others = [message for message in shown_messages if message["role"] != "tool"]
            shown_messages = [{"role": "user", "content": "\n".join(results)}, *others] if results else others
        parts = self._encoder.split(_placeholder(shown_messages))
        start = next(place for place in range(0, len(parts), 2) if _TURN in parts[place])
        return [parts[start].partition(_TURN)[2], *parts[start + 1 :]]


def _render_probe(call_format: ToolCallFormat) -> str:
    return render_calls([_PROBE], call_format)


def _placeholder(replies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    question, turn = {"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _TURN}
    return [question, turn, *map(dict, replies)]
