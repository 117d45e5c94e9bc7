"""Encoding of examples as prompts, without those that do not fit."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.episodes import has_environment
from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.data import (
    Dropped,
    Example,
    PromptEncoder,
    RowError,
    draw_few_shot,
    few_shot_messages,
    filter_over_long,
    iter_examples,
    load_examples,
    shown_problems,
)
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.prompt_lengths import EpisodeOverhead, MeasuredPrompts, prompt_limit, with_prompt_length
from agent_tunix.errors import DataError, ModelError
from agent_tunix.policy.chat.chat_template import read_chat_template
from agent_tunix.policy.chat.teacher_template import read_teacher_prompt
from agent_tunix.policy.chat.tokenizer import Tokenizer

# Rows at the start of each stream from which worked examples are drawn.
_DRAWN_FROM = 1000


@dataclass(frozen=True)
class Prompts:
    """Encoded examples whose prompts fit."""

    examples: Sequence[Example]
    messages: Sequence[Sequence[dict[str, str]]]
    token_ids: Sequence[Sequence[int]]  # token ids of each example
    dropped: Dropped  # examples whose prompt is too long or cannot be made
    # Tokens of each prompt with the declared tools of its environment; empty if there is no environment.
    lengths_with_tools: Sequence[int] = ()

    @property
    def measured(self) -> MeasuredPrompts:
        """The prompts, as far as their lengths matter."""
        lengths = self.lengths_with_tools or [len(ids) for ids in self.token_ids]
        return MeasuredPrompts(self.examples, self.messages, lengths)

    def batch(self, rows: Sequence[int] | np.ndarray) -> PromptBatch:
        """Return the prompts of some rows."""
        examples = [self.examples[row] for row in rows]
        return PromptBatch(
            prompts=[example.prompt for example in examples],
            messages=[self.messages[row] for row in rows],
            token_ids=[self.token_ids[row] for row in rows],
            columns=[example.columns for example in examples],
            rows=[int(row) for row in rows],
        )


def settle_prompts(config: Config) -> Config:
    """Return the configuration with everything that its prompts depend on.

    The texts of the chat template and of `grpo.teacher_prompt` replace their paths. Worked examples are drawn from the
    training rows if configured.

    Raises:
        ConfigError, DataError: The file or the rows cannot be read, or there are too few rows to draw from.
    """
    prompt = config.prompt
    if prompt.num_few_shot:
        prompt = draw_few_shot(prompt, _rows_to_draw_from(config), config.seed)
    if prompt.chat_template is not None:
        prompt = dataclasses.replace(prompt, chat_template=read_chat_template(prompt.chat_template))
    grpo = config.grpo
    if grpo.teacher_prompt is not None:
        grpo = dataclasses.replace(grpo, teacher_prompt=read_teacher_prompt(grpo.teacher_prompt))
    return dataclasses.replace(config, prompt=prompt, grpo=grpo)


def _rows_to_draw_from(config: Config) -> Sequence[Example]:
    """Return the training rows; for a stream, the first ones of each set."""
    if not config.data.streaming:
        return load_examples(config, "train").examples
    parts: list[tuple[str | None, Config]] = [(name, one.config) for name, one in data_sets(config).items()]
    streams = (iter_examples(part, "train", Dropped(), name) for name, part in parts or [(None, config)])
    return [example for stream in streams for example in itertools.islice(stream, _DRAWN_FROM)]


def fingerprint_prompts(prompt: PromptConfig, tokenizer: Tokenizer) -> str:
    """Return a hash of everything that turns a row into token ids: prompt settings, chat template and tokenizer."""
    plain = PromptEncoder(tokenizer, dataclasses.replace(prompt, template=None, few_shot=[]))
    probe = plain.encode(plain.messages(Example("How many are 1,234 + 5?", {}, 1)))
    decisive = [probe, few_shot_messages(prompt), prompt.template, tokenizer.fingerprint]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def encode_examples(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    config: Config,
    *,
    may_be_empty: bool = False,
    context: int | None = None,
    overhead: EpisodeOverhead | None = None,
) -> Prompts:
    """Encode every example; drop or refuse prompts that are too long, as configured.

    Also dropped are the problems of worked examples, and conversations that the model or its chat template cannot
    continue.

    Args:
        examples: Training or held-out examples.
        tokenizer: The policy's tokenizer, made with the same `prompt`.
        config: Configuration from `settle_prompts`.
        may_be_empty: True to allow an empty result, which a few rows of a stream may give.
        context: Longest text of the model in tokens, which limits prompts if `generation.max_prompt_length` is null.
        overhead: Measures what the tools of environments add; None for completions of one turn.

    Raises:
        DataError: A prompt is too long and `generation.over_long` is refuse, or no example is left.
        ConfigError, ModelError: The settings or the chat template allow no prompt for any example.
    """
    encoder = PromptEncoder(tokenizer, config.prompt)
    shots = shown_problems(config.prompt)
    asked_examples, conversations, parts = [], [], []
    refusals = Dropped()
    for example in examples:
        if example.prompt.strip() in shots:
            refusals.add("used as a worked example", example.index)
            continue
        try:
            messages = encoder.messages(example)
            # The tools of an environment are declared when an episode begins.
            parts.append(encoder.split(messages, () if has_environment(config) else example.tools))
        except RowError as error:
            refusals.add(error.reason, example.index, error.detail)
            continue
        except ModelError as error:
            refusals.add("rejected by the chat template", example.index, str(error))
            continue
        asked_examples.append(example)
        conversations.append(messages)
    if not asked_examples and not may_be_empty:
        raise DataError(
            f"no prompt can be built from any of the {len(examples)} examples: {refusals.describe()}",
            code="invalid_prompt",
        )
    token_ids = tokenizer.encode_prompts(parts)
    lengths = [len(ids) for ids in token_ids]
    if overhead is not None:
        lengths = [
            length + overhead.of_tools(example.columns, messages, length)
            for example, messages, length in zip(asked_examples, conversations, lengths, strict=True)
        ]
    limit = prompt_limit(config, context)
    rows = list(range(len(asked_examples)))
    if limit.tokens is not None:
        _, too_long = filter_over_long(
            asked_examples,
            lengths,
            limit.tokens,
            config.generation.over_long,
            may_be_empty=may_be_empty,
            reason=limit.reason,
            remedy=limit.remedy,
        )
        refusals.absorb(too_long)
        rows = [row for row in rows if lengths[row] <= limit.tokens]
    return Prompts(
        [asked_examples[row] for row in rows],
        [conversations[row] for row in rows],
        [token_ids[row] for row in rows],
        refusals,
        [lengths[row] for row in rows] if overhead is not None else (),
    )


def measure_stream(
    config: Config, tokenizer: Tokenizer, context: int | None, overhead: EpisodeOverhead | None
) -> Config:
    """Return the configuration with the longest prompt of a stream, judged by the first rows of each set."""
    prompts = encode_examples(_rows_to_draw_from(config), tokenizer, config, context=context, overhead=overhead)
    return with_prompt_length(config, prompts.measured, prompt_limit(config, context), overhead, is_sample=True)
