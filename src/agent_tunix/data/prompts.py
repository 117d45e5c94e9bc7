"""A problem as the token ids that the model sees, such that no text of a dataset can pass for the chat template.

A row may well contain `<|im_end|>`; encoded with the rest it would end the user's turn. So the template is rendered
with a placeholder in place of every text, split there, and put together from tokens: the template's own pieces with
special tokens, the texts without. Each text stands between whole tokens of the template, as it does between the
special tokens of an honest prompt.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Example
from agent_tunix.errors import ConfigError, DataError

SYSTEM_PLACEHOLDER = "@@agent-tunix-system@@"
PROBLEM_PLACEHOLDER = "@@agent-tunix-problem@@"


class Tokenizer(Protocol):
    """What this module needs of a tokenizer."""

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The chat template over the messages, as text, up to where the model's turn begins."""
        ...

    def encode(self, text: str, *, allow_special: bool) -> list[int]:
        """Token ids of exactly this text, none added; `<|im_end|>` is one token only where `allow_special`."""
        ...


def messages_for(prompt_config: PromptConfig, problem: str) -> list[dict[str, str]]:
    """The conversation that puts a problem: the system message, unless it is null or empty, and the user's."""
    system = _system_text(prompt_config)
    opening = [{"role": "system", "content": system}] if system else []
    return [*opening, {"role": "user", "content": problem.strip()}]


class PromptEncoder:
    """Encodes problems; the template is rendered and encoded once.

    Args:
        tokenizer: The policy's.
        prompt_config: The system message.

    Raises:
        ConfigError: The chat template leaves out the user's or the system message.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_config: PromptConfig) -> None:
        self._tokenizer = tokenizer
        system = _system_text(prompt_config)
        stand_in = PromptConfig(system=SYSTEM_PLACEHOLDER if system else None)
        rendered = tokenizer.render_chat(messages_for(stand_in, PROBLEM_PLACEHOLDER))
        if PROBLEM_PLACEHOLDER not in rendered:
            raise ConfigError("the chat template leaves out the user's message; use a model with a working template")
        if system and SYSTEM_PLACEHOLDER not in rendered:
            raise ConfigError("the chat template has no place for a system message; set prompt.system=null")
        # The pieces of the prompt in order; None stands for the problem.
        self._pieces: list[list[int] | None] = []
        for part in re.split(f"({PROBLEM_PLACEHOLDER}|{SYSTEM_PLACEHOLDER})", rendered):
            if part == PROBLEM_PLACEHOLDER:
                self._pieces.append(None)
            elif part == SYSTEM_PLACEHOLDER:
                self._pieces.append(tokenizer.encode(system, allow_special=False))
            elif part:
                self._pieces.append(tokenizer.encode(part, allow_special=True))

    def encode(self, problem: str) -> list[int]:
        """Token ids of the whole prompt."""
        problem_ids = self._tokenizer.encode(problem.strip(), allow_special=False)
        return [token for piece in self._pieces for token in (problem_ids if piece is None else piece)]


def encode_prompt(tokenizer: Tokenizer, prompt_config: PromptConfig, problem: str) -> list[int]:
    """Token ids of one prompt; for many, keep a `PromptEncoder`."""
    return PromptEncoder(tokenizer, prompt_config).encode(problem)


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
        raise ConfigError(f"generation.over_long must be drop or refuse, not {policy!r}")
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
            f"{len(examples)} have more: {dropped.describe()}; set generation.max_prompt_length={longest}{others}"
        )
    return kept, dropped


def _system_text(prompt_config: PromptConfig) -> str:
    return (prompt_config.system or "").strip()
