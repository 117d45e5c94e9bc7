"""A conversation as the token ids that the model sees, such that no text of a dataset can pass for the chat template.

A row may well contain `<|im_end|>`; encoded with the rest it would end the user's turn. So a rendered prompt is divided
into texts and the special tokens between them, and only what the template wrote counts as a special token. The texts
are encoded together with the template around them, as an honest prompt is, so that an honest prompt has the very ids
that transformers gives it.

Which tokens the template wrote is known from a second rendering, in which the characters that special tokens are made
of are others in every message: no special token in it can have come from a message, not even partly. Where the first
rendering has the same special tokens, and no message holds one, it is the prompt; else the second one is, with the
characters put back.
"""

import functools
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Example
from agent_tunix.data.messages import Message, few_shot_messages, messages_for
from agent_tunix.errors import ConfigError, DataError, ModelError

_LOGGER = logging.getLogger("agent_tunix.prompts")

# What finds the place of a message in a rendered template.
_PROBE_USER = "agent tunix asks"
_PROBE_SYSTEM = "agent tunix instructs"
# Characters that Unicode leaves to private use.
_PRIVATE = range(0xF0000, 0x10FFFE)


class PromptTokenizer(Protocol):
    """What this module needs of a tokenizer."""

    @property
    def special_texts(self) -> Sequence[str]:
        """The texts that are single tokens and that only a chat template may write."""
        ...

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The chat template over the messages, as text, up to where the model's turn begins."""
        ...

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Token ids of prompts, each as its parts: text, special token, text, …, text."""
        ...


class PromptEncoder:
    """Makes conversations of examples, and token ids of conversations.

    Args:
        tokenizer: The policy's.
        prompt: System message, worked examples, and how a question is put.

    Raises:
        ModelError: There is no chat template, or it refuses a plain question.
        ConfigError: The template leaves out the user's message, or has no place for the system message and
            `prompt.without_system_role` is refuse; or worked examples are yet to be drawn (`draw_few_shot`).
    """

    def __init__(self, tokenizer: PromptTokenizer, prompt: PromptConfig) -> None:
        if prompt.num_few_shot:
            raise ConfigError(
                f"prompt.num_few_shot={prompt.num_few_shot} worked examples are yet to be drawn",
                code="undrawn_examples",
            )
        self._tokenizer = tokenizer
        self._prompt = prompt
        self._pattern = _pattern_of(tokenizer.special_texts)
        self._characters = sorted({letter for text in tokenizer.special_texts for letter in text if letter.strip()})
        # Which messages there are, by role and fields that are not empty → the special tokens that the template writes.
        self._written: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        if _PROBE_USER not in tokenizer.render_chat([{"role": "user", "content": _PROBE_USER}]):
            raise ConfigError(
                "the chat template leaves out the user's message; set prompt.chat_template to another",
                code="question_left_out",
            )
        if (prompt.system or "").strip() and not self._has_system_role:
            self._fold_or_refuse()
        few_shot_messages(prompt)  # tells what is missing before any row is read

    @functools.cached_property
    def _has_system_role(self) -> bool:
        """Whether a system message reaches the model."""
        probe = [{"role": "system", "content": _PROBE_SYSTEM}, {"role": "user", "content": _PROBE_USER}]
        try:
            return _PROBE_SYSTEM in self._tokenizer.render_chat(probe)
        except ModelError:
            return False

    def _fold_or_refuse(self) -> None:
        if self._prompt.without_system_role == "refuse":
            raise ConfigError(
                "the chat template has no place for a system message; set prompt.system=null, or"
                " prompt.without_system_role=fold to put it before the user's first message",
                code="no_system_role",
            )
        _LOGGER.info("the chat template has no system role: prompt.system opens the user's first message")

    def messages(self, example: Example) -> list[Message]:
        """The conversation that is put to the model, before its turn.

        Raises:
            DataError, ConfigError: As `messages_for` does.
            RowError: The example's own conversation cannot be continued.
        """
        messages = messages_for(self._prompt, example)
        if any(message["role"] == "system" for message in messages) and not self._has_system_role:
            return _fold_system(messages)
        return messages

    def encode(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of one prompt.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        return self._tokenizer.encode_prompts([self.split(messages)])[0]

    def split(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """A rendered prompt as text, special token, text, special token, …, text; the template wrote the tokens.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        parts = self._pattern.split(self._tokenizer.render_chat(messages))
        shape = tuple((message["role"], *(field for field, text in message.items() if text)) for message in messages)
        if shape not in self._written:
            self._written[shape] = self._split_disguised(messages)[1::2]
        holds_special = any(self._pattern.search(text) for message in messages for text in _texts(message))
        if not holds_special and parts[1::2] == self._written[shape]:
            return parts
        return self._split_disguised(messages)

    def _split_disguised(self, messages: Sequence[Mapping[str, str]]) -> list[str]:
        """The same of messages that share no character with a special token, until the parts are found."""
        used = {letter for message in messages for text in _texts(message) for letter in text}
        unused = (code for code in _PRIVATE if chr(code) not in used)
        disguise = {ord(letter): code for letter, code in zip(self._characters, unused, strict=False)}
        if len(disguise) < len(self._characters):
            raise ModelError(
                "the messages use every private character of Unicode, and so cannot be told apart",
                code="no_unused_characters",
            )
        disguised = [
            {field: value if field == "role" else value.translate(disguise) for field, value in message.items()}
            for message in messages
        ]
        parts = self._pattern.split(self._tokenizer.render_chat(disguised))
        undo = {stand_in: letter for letter, stand_in in disguise.items()}
        return [part if place % 2 else part.translate(undo) for place, part in enumerate(parts)]


def filter_over_long(
    examples: Sequence[Example],
    lengths: Iterable[int],
    max_prompt_length: int,
    policy: str,
    *,
    may_be_empty: bool = False,
) -> tuple[list[Example], Dropped]:
    """The examples whose prompts fit.

    Args:
        examples: All examples.
        lengths: Tokens of each one's prompt.
        max_prompt_length: The longest prompt that fits, in tokens.
        policy: What becomes of a longer one: `drop` counts it, `refuse` refuses them all.
        may_be_empty: Whether none need fit.

    Returns:
        The examples that fit, and the tally of the others.

    Raises:
        ConfigError: There is no such policy.
        DataError: A prompt is too long and the policy is `refuse`, or none fits where one must.
    """
    if policy not in ("drop", "refuse"):
        raise ConfigError(f"generation.over_long must be drop or refuse, not {policy!r}", code="invalid_setting")
    kept, dropped, longest = [], Dropped(), 0
    for example, length in zip(examples, lengths, strict=True):
        longest = max(longest, length)
        if length <= max_prompt_length:
            kept.append(example)
        else:
            dropped.add(f"prompt over {max_prompt_length} tokens", example.index, f"{length} tokens")
    if dropped.total and (policy == "refuse" or not (kept or may_be_empty)):
        others = " or generation.over_long=drop" if kept else ""
        raise DataError(
            f"prompts may have generation.max_prompt_length={max_prompt_length} tokens, but {dropped.total} of "
            f"{len(examples)} have more: {dropped.describe()}; set generation.max_prompt_length={longest}{others}",
            code="over_long_prompts",
        )
    return kept, dropped


def _pattern_of(special_texts: Sequence[str]) -> re.Pattern[str]:
    """Finds special tokens as tokenizers do: the leftmost, and of those that begin there the longest."""
    longest_first = sorted(special_texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else "((?!))")


def _texts(message: Mapping[str, str]) -> Iterable[str]:
    return (value for field, value in message.items() if field != "role")


def _fold_system(messages: Sequence[Message]) -> list[Message]:
    """The system messages put before the first message of the user, or in one of their own where there is none."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    others = [message for message in messages if message["role"] != "system"]
    for place, message in enumerate(others):
        if message["role"] == "user":
            others[place] = {**message, "content": f"{system}\n\n{message['content']}"}
            return others
    return [{"role": "user", "content": system}, *others]
