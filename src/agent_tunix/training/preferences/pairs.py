"""Pairs of responses to the same prompt: the chosen one and the rejected one. Importing this module loads no JAX.

A row has the columns `chosen` and `rejected`. Each is a text, or chat messages that end with the model's response, as
Hugging Face's preference datasets have them. If a row has no prompt, it is what the two conversations share
(`data/pair_layout.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_tunix.config.preferences import preference_settings
from agent_tunix.config.schema import Config
from agent_tunix.data import peek_examples
from agent_tunix.data.pair_layout import CHOSEN, REJECTED, shared_messages
from agent_tunix.errors import DataError
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.training.targets import (
    Encoder,
    Limit,
    ResponseBatch,
    check_micro_batch,
    encode_responses,
    without_sampling,
)

if TYPE_CHECKING:
    from agent_tunix.data.prompt_batch import PromptBatch


def check_preferences(validated: ValidatedConfig) -> ValidatedConfig:
    """Return the configuration of preference tuning: log-probabilities at temperature 1, and one update per batch.

    Args:
        validated: A configuration that passed `preflight`.

    Raises:
        ConfigError: A micro-batch cannot be divided among the devices.
        DataError: The first row of the data, or of a set of a mixture, is not a pair.
    """
    config = validated.config
    check_micro_batch(config)
    for example in peek_examples(config).values():
        read_pair(example.columns)
    settings = preference_settings(config.prefer)
    validated = without_sampling(validated, reference_weight=settings.beta if settings.has_reference else 0.0)
    # The reference policy takes its log-probabilities at the temperature of the configuration.
    generation = replace(config.generation, temperature=1.0)
    return replace(validated, config=replace(validated.config, generation=generation))


def read_pair(columns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the texts of the chosen and the rejected response of a row.

    Raises:
        DataError: A column is missing, empty or equal to the other, or its messages are not one response to the prompt.
    """
    for name in (CHOSEN, REJECTED):
        if name not in columns:
            raise DataError(
                f"preference tuning requires the columns {CHOSEN!r} and {REJECTED!r}, but a row has "
                f"{', '.join(columns)}; rename them with data.columns, or make pairs from a run with "
                "prefer.from_rollouts=RUN",
                code="invalid_row",
            )
    chosen, rejected = columns[CHOSEN], columns[REJECTED]
    shared = len(shared_messages(chosen, rejected))
    texts = _response(CHOSEN, chosen, shared), _response(REJECTED, rejected, shared)
    if texts[0] == texts[1]:
        raise DataError("the chosen and the rejected response must differ, but are equal", code="invalid_row")
    return texts


def _response(column: str, value: Any, num_shared: int) -> str:
    """Return the text of a response; of messages, the one after those that both conversations share."""
    if isinstance(value, list | tuple):
        own = value[num_shared:]
        if len(own) != 1 or not isinstance(own[0], Mapping) or own[0].get("role") != "assistant":
            raise DataError(
                f"the column {column!r} must end with one message of the assistant that differs from the other "
                f"response, but {len(own)} messages differ",
                code="invalid_row",
            )
        value = own[0].get("content")
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"the column {column!r} must have text, not {value!r:.80}", code="invalid_row")
    return value.strip()


def make_pairs(batch: "PromptBatch", tokenizer: Encoder, config: Config, *, pad_id: int, eos_id: int) -> ResponseBatch:
    """Encode the pairs of a batch, the chosen response of each prompt before the rejected one.

    Args:
        batch: The encoded prompts with their columns.
        tokenizer: Tokenizer of the policy.
        config: Configuration of the run, for the lengths.
        pad_id: Token id of the padding.
        eos_id: Token id that ends a response.
    """
    given = config.prefer.max_response_length
    longest = config.generation.max_generation_steps if given is None else given
    limit = Limit(longest, given, "prefer.max_response_length", "response")
    return encode_responses(
        batch,
        lambda row: read_pair(batch.columns[row]),
        limit,
        tokenizer,
        config,
        pad_id=pad_id,
        eos_id=eos_id,
        num_responses=2,
    )
