"""The prompts of one step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PromptBatch:
    """B prompts.

    Attributes:
        prompts: Problem texts, for people and rewards.
        messages: Chat messages of each prompt.
        token_ids: Ids that the model sees, at most `generation.max_prompt_length` of each prompt.
        columns: Columns of each row of the dataset.
    """

    prompts: Sequence[str]
    messages: Sequence[Sequence[Mapping[str, Any]]]
    token_ids: Sequence[Sequence[int]]
    columns: Sequence[Mapping[str, Any]]
