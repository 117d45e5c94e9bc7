"""The prompts of one step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PromptBatch:
    """A batch of B prompts."""

    prompts: Sequence[str]  # texts of the problems, for people and rewards
    messages: Sequence[Sequence[Mapping[str, Any]]]
    # Token ids that the model sees, at most `generation.max_prompt_length` for each prompt.
    token_ids: Sequence[Sequence[int]]
    columns: Sequence[Mapping[str, Any]]
    rows: Sequence[int] = ()  # index of each row among the training rows; empty if there is none
