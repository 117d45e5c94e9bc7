"""The prompts of one step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PromptBatch:
    """A batch of B prompts.

    Attributes:
        prompts: Texts of the problems, for people and rewards.
        token_ids: Token ids that the model sees, at most `generation.max_prompt_length` for each prompt.
        rows: Index of each row among the training rows; empty if there is none.
    """

    prompts: Sequence[str]
    messages: Sequence[Sequence[Mapping[str, Any]]]
    token_ids: Sequence[Sequence[int]]
    columns: Sequence[Mapping[str, Any]]
    rows: Sequence[int] = ()
