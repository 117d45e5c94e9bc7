"""Targets of a supervised start: the text, and the tokens, that should follow each prompt.

Importing this module does not load JAX.
"""

import re
from collections.abc import Mapping, Sequence
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
class TargetBatch:
    """B prompts with their targets, as NumPy arrays."""

    prompt_tokens: np.ndarray  # [B, P], padded on the left
    prompt_lengths: np.ndarray  # [B], number of tokens of each prompt
    tokens: np.ndarray  # [B, T], the target and its end-of-sequence token, padded on the right
    mask: np.ndarray  # [B, T], True for tokens that are learned; False in all of a row without a target that fits
    left_out: Sequence[str]  # for each row without a target that fits, the reason


def check_supervised(validated: ValidatedConfig) -> ValidatedConfig:
    """Return the configuration of a supervised start: no reference policy, and one update per batch.

    Args:
        validated: A configuration that passed `preflight`.

    Raises:
        ConfigError: A micro-batch cannot be divided among the devices.
        DataError: The first row of the data, or of a set of a mixture, has no target.
    """
    config = validated.config
    size, shape = micro_batch_size(config), read_mesh_shape(config.model.mesh_shape)
    if shape is not None and size % shape.row_shards:
        raise ConfigError(
            "a micro-batch of targets must be divisible by the devices that share its rows (data × fsdp of "
            f"model.mesh_shape {shape}), but {size} is not divisible by {shape.row_shards}; use "
            f"training.micro_batch_size={shape.row_shards}"
        )
    for example in peek_examples(config).values():
        target_text(example.columns, config)
    return replace(
        validated,
        config=replace(
            config, grpo=replace(config.grpo, beta=0.0, num_iterations=1, reference_sync_steps=0, teacher=None)
        ),
    )


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


def make_targets(batch: "PromptBatch", tokenizer: Encoder, config: Config, *, pad_id: int, eos_id: int) -> TargetBatch:
    """Encode the targets of a batch. A row without a target that fits stays in the batch with an empty mask.

    Args:
        batch: The encoded prompts with their columns.
        tokenizer: Tokenizer of the policy.
        config: Configuration of the run, for the lengths and the target text.
        pad_id: Token id of the padding.
        eos_id: Token id that ends a target.
    """
    longest = max_target_length(config)
    prompt_BP = np.full((len(batch.token_ids), prompt_tokens(config)), pad_id, np.int32)
    token_BT = np.full((len(batch.token_ids), longest), pad_id, np.int32)
    mask_BT = np.zeros(token_BT.shape, np.bool_)
    left_out = []
    for row, (prompt, columns) in enumerate(zip(batch.token_ids, batch.columns, strict=True)):
        prompt_BP[row, prompt_BP.shape[1] - len(prompt) :] = prompt
        try:
            # As in a completion, a special token that the target's text spells out is plain text.
            ids = [*tokenizer.encode(target_text(columns, config), allow_special=False), eos_id]
        except DataError as error:
            left_out.append(str(error))
            continue
        if len(ids) > longest:
            key = "sft.max_target_length" if config.sft.max_target_length else "generation.max_generation_steps"
            left_out.append(
                f"a target must have at most {key}={longest} tokens, not {len(ids)}; raise sft.max_target_length"
            )
            continue
        token_BT[row, : len(ids)] = ids
        mask_BT[row, : len(ids)] = True
    lengths_B = np.array([len(ids) for ids in batch.token_ids], np.int32)
    return TargetBatch(prompt_BP, lengths_B, token_BT, mask_BT, left_out)
