"""Encoding of conversations, such that no text of a dataset can act as a chat template's special token.

A row may contain `<|im_end|>`; encoded directly, it would end the user's turn. So a rendered prompt is split into texts
and the special tokens between them, and only tokens that the template wrote count as special. Texts are encoded
together with the template around them, so an ordinary prompt has exactly the ids that transformers gives it.

A second rendering shows which tokens the template wrote. For it, other characters replace those of special tokens in
every message, so no special token can come from a message, not even in part. Templates read the declarations of tools,
so only those of their texts that contain a special token change. The first rendering is used if it has the same special
tokens and no message or tool contains one. Otherwise the second one is used, with the characters restored.
"""

import functools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import Message, few_shot_messages, messages_for
from agent_tunix.errors import ConfigError, DataError, ModelError

_LOGGER = logging.getLogger("agent_tunix.prompts")

# Probe texts, found again in the rendered template.
_PROBE_USER = "agent tunix asks"
_PROBE_SYSTEM = "agent tunix instructs"
# Unicode's private-use characters.
_PRIVATE = range(0xF0000, 0x10FFFE)
_ANY = re.compile("")
# Shapes of conversations of which the special tokens are remembered.
_MOST_SHAPES = 10_000


class PromptTokenizer(Protocol):
    """The part of a tokenizer that this module uses."""

    @property
    def special_texts(self) -> Sequence[str]:
        """Texts that are single tokens and that only a chat template may write."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the chat template rendered over the messages as text, up to the start of the model's turn."""
        ...

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return token ids of prompts, each given as its parts: text, special token, text, …, text."""
        ...


class PromptEncoder:
    """An encoder from examples to conversations, and from conversations to token ids.

    Args:
        tokenizer: The policy's tokenizer.
        prompt: Configures the system message, the worked examples and the question.

    Raises:
        ModelError: There is no chat template, or it refuses a plain question.
        ConfigError: The template omits the user's message; or it omits the system message and
            `prompt.without_system_role` is refuse; or worked examples are not drawn yet (`draw_few_shot`).
    """

    def __init__(self, tokenizer: PromptTokenizer, prompt: PromptConfig) -> None:
        if prompt.num_few_shot:
            raise ConfigError(
                f"prompt.num_few_shot={prompt.num_few_shot} worked examples must be drawn first; draw them with "
                "draw_few_shot, or set prompt.num_few_shot=0",
                code="invalid_prompt",
            )
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._pattern = _pattern_of(tokenizer.special_texts)
        self._characters = sorted({letter for text in tokenizer.special_texts for letter in text if letter.strip()})
        # Roles and non-empty fields of the messages → special tokens that the template writes for them.
        self._written: dict[tuple[Any, ...], list[str]] = {}
        if _PROBE_USER not in tokenizer.render_chat([{"role": "user", "content": _PROBE_USER}]):
            raise ConfigError(
                "the chat template must render the user's message, but it does not; set prompt.chat_template to "
                "another template",
                code="invalid_chat_template",
            )
        if (prompt.system or "").strip() and not self.has_system_role:
            self._fold_or_refuse()
        few_shot_messages(prompt)  # raises before any row is read

    @functools.cached_property
    def has_system_role(self) -> bool:
        """True if the chat template renders a system message."""
        probe = [{"role": "system", "content": _PROBE_SYSTEM}, {"role": "user", "content": _PROBE_USER}]
        try:
            return _PROBE_SYSTEM in self._tokenizer.render_chat(probe)
        except ModelError:
            return False

    def _fold_or_refuse(self) -> None:
        if self._prompt.without_system_role == "refuse":
            raise ConfigError(
                "prompt.system requires a chat template with a system role, but this one has none; set "
                "prompt.system=null, or prompt.without_system_role=fold to put it before the user's first message",
                code="invalid_chat_template",
            )
        _LOGGER.info("the chat template has no system role; prompt.system is put before the user's first message")

    def messages(self, example: Example) -> list[Message]:
        """Return the conversation of an example, up to the model's turn.

        Raises:
            DataError, ConfigError: See `messages_for`.
            RowError: The model cannot continue the example's own conversation.
        """
        messages = messages_for(self._prompt, example)
        if any(message["role"] == "system" for message in messages) and not self.has_system_role:
            return fold_system(messages)
        return messages

    def encode(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the token ids of one prompt; raise ModelError if the chat template refuses the messages."""
        return self._tokenizer.encode_prompts([self.split(messages, tools)])[0]

    def split(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[str]:
        """Split a rendered prompt into text, special token, text, …, text; the template wrote the special tokens."""
        rendered = self._tokenizer.render_chat(messages, tools)
        names = [call["function"]["name"] for message in messages for call in message.get("tool_calls", ())]
        if left_out := [
            name for name in (*names, *(tool["function"]["name"] for tool in tools)) if name not in rendered
        ]:
            raise ModelError(
                f"the chat template must render tools and their calls, but leaves out {', '.join(left_out)}; set "
                "prompt.chat_template to one that has them",
                code="invalid_chat_template",
            )
        parts = self._pattern.split(rendered)
        shape = (
            tuple((message["role"], *(field for field, text in message.items() if text)) for message in messages),
            tuple(tool["function"]["name"] for tool in tools),
        )
        written = self._written.get(shape)
        if written is None:
            written = self._split_disguised(messages, tools)[1::2]
            if len(self._written) >= _MOST_SHAPES:  # a server may see any number of them
                self._written.clear()
            self._written[shape] = written
        texts = (text for one in (*messages, *tools) for text in _texts(one))
        holds_special = any(map(self._pattern.search, texts))
        if not holds_special and parts[1::2] == written:
            return parts
        return self._split_disguised(messages, tools)

    def _split_disguised(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[str]:
        """Split a prompt rendered from messages without any character of a special token, then restore them."""
        letters = {letter for one in (*messages, *tools) for text in _texts(one) for letter in text}
        unused = (code for code in _PRIVATE if chr(code) not in letters)
        disguise = {ord(letter): code for letter, code in zip(self._characters, unused, strict=False)}
        if len(disguise) < len(self._characters):
            raise ModelError(
                "the messages use every private-use character of Unicode, so they cannot be marked",
                code="invalid_chat_template",
            )
        disguised = [
            {field: value if field == "role" else _disguised(value, disguise) for field, value in message.items()}
            for message in messages
        ]
        tools = [_translated(tool, disguise, self._pattern) for tool in tools]
        parts = self._pattern.split(self._tokenizer.render_chat(disguised, tools))
        undo = {stand_in: letter for letter, stand_in in disguise.items()}
        return [part if place % 2 else part.translate(undo) for place, part in enumerate(parts)]


def filter_over_long(
    examples: Sequence[Example],
    lengths: Iterable[int],
    max_prompt_length: int,
    policy: str,
    *,
    may_be_empty: bool = False,
    reason: str = "",
    remedy: str = "set generation.max_prompt_length={longest}",
) -> tuple[list[Example], Dropped]:
    """Return the examples whose prompts fit.

    Args:
        examples: All examples.
        lengths: Length of each example's prompt in tokens.
        max_prompt_length: Longest prompt that fits, in tokens.
        policy: `drop` counts longer prompts; `refuse` raises an error if there are any.
        may_be_empty: If True, the result may be empty.
        reason: Source of the limit, for the error; by default the key.
        remedy: Advice of the error, with a placeholder for the longest prompt.

    Returns:
        The examples that fit, and a tally of the others.

    Raises:
        DataError: A prompt is too long and the policy is `refuse`, or none fits and `may_be_empty` is False.
    """
    short_enough, dropped, longest = [], Dropped(), 0
    for example, length in zip(examples, lengths, strict=True):
        longest = max(longest, length)
        if length <= max_prompt_length:
            short_enough.append(example)
        else:
            dropped.add(f"prompt over {max_prompt_length} tokens", example.index, f"{length} tokens")
    if dropped.total and (policy == "refuse" or not (short_enough or may_be_empty)):
        others = " or generation.over_long=drop" if short_enough else ""
        raise DataError(
            f"prompts must have at most {reason or f'generation.max_prompt_length={max_prompt_length}'} tokens, but "
            f"{dropped.total} of {len(examples)} have more: {dropped.describe()}; "
            f"{remedy.format(longest=longest)}{others}",
            code="invalid_prompt",
        )
    return short_enough, dropped


def _pattern_of(special_texts: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that finds special tokens as tokenizers do: the leftmost, and there the longest."""
    longest_first = sorted(special_texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else "((?!))")


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield all texts of a message, including those of its tool calls, except its role."""
    for field, value in message.items():
        if field != "role":
            yield from _texts_in(value)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_in(key)
            yield from _texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_in(item)


def _disguised(value: Any, table: Mapping[int, int]) -> Any:
    """Return a field of a message with characters replaced. Templates read the keys of tool calls, so these stay."""
    if isinstance(value, str):
        return value.translate(table)
    return [
        {
            **call,
            **({"id": call["id"].translate(table)} if "id" in call else {}),
            "function": {name: _translated(item, table) for name, item in call["function"].items()},
        }
        for call in value
    ]


def _translated(value: Any, table: Mapping[int, int], where: re.Pattern[str] = _ANY) -> Any:
    """Return a value with characters replaced in those of its texts that match a pattern; by default, in all."""
    if isinstance(value, str):
        return value.translate(table) if where.search(value) else value
    if isinstance(value, Mapping):
        return {_translated(key, table, where): _translated(item, table, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_translated(item, table, where) for item in value]
    return value


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system messages before the first user message, or in a user message of their own if there is none."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    others = [message for message in messages if message["role"] != "system"]
    for place, message in enumerate(others):
        if message["role"] == "user":
            others[place] = {**message, "content": f"{system}\n\n{message['content']}"}
            return others
    return [{"role": "user", "content": system}, *others]
