"""Targets of a supervised start: the text that should follow each prompt; and the tokens of any responses.

Importing this module does not load JAX.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.schema import Config
from agent_tunix.data import peek_examples
from agent_tunix.data.examples import is_number
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.rewards.answers.numbers import number_text
from agent_tunix.runs.preflight import ValidatedConfig

if TYPE_CHECKING:
    from agent_tunix.data.prompt_batch import PromptBatch

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Encoder(Protocol):
    """The part of a tokenizer that this module uses."""

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        """Return the token ids of exactly this text. Special tokens in it count as such only if `allow_special`."""
        ...


@dataclass(frozen=True)
class ResponseBatch:
    """B prompts with k responses each, as NumPy arrays."""

    prompt_tokens: np.ndarray  # [B, P], padded on the left
    prompt_lengths: np.ndarray  # [B], number of tokens of each prompt
    # [B × k, T], a response and its end-of-sequence token, those of a prompt side by side, padded on the right
    tokens: np.ndarray
    mask: np.ndarray  # [B × k, T], True for tokens that are learned; False in all of a row that cannot be used
    left_out: Sequence[str]  # for each row that cannot be used, the reason


def check_supervised(validated: ValidatedConfig) -> ValidatedConfig:
    """Return the configuration of a supervised start: no reference policy, and one update per batch.

    Args:
        validated: A configuration that passed `preflight`.

    Raises:
        ConfigError: A micro-batch cannot be divided among the devices.
        DataError: The first row of the data, or of a set of a mixture, has no target.
    """
    check_micro_batch(validated.config)
    for example in peek_examples(validated.config).values():
        target_text(example.columns, validated.config)
    return without_sampling(validated)


def check_micro_batch(config: Config) -> None:
    """Raise ConfigError if the rows of a micro-batch cannot be divided among the devices."""
    size, shape = micro_batch_size(config), read_mesh_shape(config.model.mesh_shape)
    if shape is not None and size % shape.row_shards:
        raise ConfigError(
            "a micro-batch of rows must be divisible by the devices that share them (data × fsdp of "
            f"model.mesh_shape {shape}), but {size} is not divisible by {shape.row_shards}; use "
            f"training.micro_batch_size={shape.row_shards}"
        )


def without_sampling(validated: ValidatedConfig, *, reference_weight: float = 0.0) -> ValidatedConfig:
    """Return the configuration of a run that samples nothing, with one update per batch.

    Args:
        validated: A configuration that passed `preflight`.
        reference_weight: Weight of the reference policy in the loss; 0 without one.
    """
    config = validated.config
    grpo = replace(
        config.grpo, beta=reference_weight, num_iterations=1, reference_sync_steps=0, teacher=None, replay_groups=0
    )
    return replace(validated, config=replace(config, grpo=grpo))


def target_text(columns: Mapping[str, Any], config: Config) -> str:
    """Return the target of a row: the text that should follow its prompt.

    It is the column `sft.target_column`, or else `prompt.format` filled in: `{answer}` becomes the reference, the name
    of a column becomes the value of that column, and any other placeholder becomes the worked solution.

    Args:
        columns: Columns of the row, with `answer` and perhaps a worked solution: `worked_solution`, or else `solution`.
        config: Configuration of the run, for the column or the format.

    Raises:
        DataError: The row lacks a required column, or the column has no text.
    """
    column = config.sft.target_column
    if column is not None:
        return _text(columns, column, "sft.target_column")

    def fill(match: re.Match[str]) -> str:
        work = "worked_solution" if "worked_solution" in columns else "solution"
        name = match[1] if match[1] in columns else work
        return _text(columns, name, f"{{{match[1]}}} of prompt.format")

    return _PLACEHOLDER.sub(fill, config.prompt.format)


def _text(columns: Mapping[str, Any], name: str, wanted_by: str) -> str:
    value: Any = columns.get(name)
    if is_number(value):
        return number_text(value)
    if not isinstance(value, str) or not value.strip():
        what = f"is {value!r}" if name in columns else f"is not one of {', '.join(columns)}"
        raise DataError(
            f"the column {name!r}, which {wanted_by} requires for a target, {what}; add a worked solution to the "
            "rows (`solution`, or before #### as in GSM8K), or set sft.target_column",
            code="invalid_row",
        )
    return value.strip()


def max_target_length(config: Config) -> int:
    """Return the number of tokens of the longest target that fits, its end-of-sequence token included."""
    if config.sft.max_target_length is not None:
        return config.sft.max_target_length
    return config.generation.max_generation_steps


def make_targets(
    batch: "PromptBatch", tokenizer: Encoder, config: Config, *, pad_id: int, eos_id: int
) -> ResponseBatch:
    """Encode the targets of a batch; see `encode_responses`."""
    limit = Limit(max_target_length(config), config.sft.max_target_length, "sft.max_target_length", "target")
    return encode_responses(
        batch,
        lambda row: [target_text(batch.columns[row], config)],
        limit,
        tokenizer,
        config,
        pad_id=pad_id,
        eos_id=eos_id,
    )


@dataclass(frozen=True)
class Limit:
    """Limit on the length of responses."""

    tokens: int
    given: int | None  # value of the key; None if `generation.max_generation_steps` decides
    key: str
    unit: str  # word for a response in messages


def encode_responses(
    batch: "PromptBatch",
    read: Callable[[int], Sequence[str]],
    limit: Limit,
    tokenizer: Encoder,
    config: Config,
    *,
    pad_id: int,
    eos_id: int,
    num_responses: int = 1,
) -> ResponseBatch:
    """Encode the responses of a batch. A row that cannot be used stays in the batch with empty masks.

    Args:
        batch: The encoded prompts with their columns.
        read: Function from the number of a row in the batch to its k responses; raises DataError if it has none.
        limit: Longest response, its end-of-sequence token included.
        tokenizer: Tokenizer of the policy.
        config: Configuration of the run, for the length of prompts.
        pad_id: Token id of the padding.
        eos_id: Token id that ends a response.
        num_responses: k, responses of a row.
    """
    prompt_BP = np.full((len(batch.token_ids), prompt_tokens(config)), pad_id, np.int32)
    tokens_nT = np.full((len(batch.token_ids) * num_responses, limit.tokens), pad_id, np.int32)
    mask_nT = np.zeros(tokens_nT.shape, np.bool_)
    left_out = []
    for row, prompt in enumerate(batch.token_ids):
        prompt_BP[row, prompt_BP.shape[1] - len(prompt) :] = prompt
        try:
            # As in a completion, a special token that a response spells out is plain text.
            responses = [[*tokenizer.encode(text, allow_special=False), eos_id] for text in read(row)]
        except DataError as error:
            left_out.append(str(error))
            continue
        longest = max(map(len, responses))
        if longest > limit.tokens:
            key = limit.key if limit.given else "generation.max_generation_steps"
            left_out.append(
                f"a {limit.unit} must have at most {key}={limit.tokens} tokens, not {longest}; raise {limit.key}"
            )
            continue
        for place, ids in enumerate(responses, row * num_responses):
            tokens_nT[place, : len(ids)] = ids
            mask_nT[place, : len(ids)] = True
    lengths_B = np.array([len(ids) for ids in batch.token_ids], np.int32)
    return ResponseBatch(prompt_BP, lengths_B, tokens_nT, mask_nT, left_out)
