"""Layout of preference data: rows with a chosen and a rejected response, and perhaps without a prompt of their own."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agent_tunix.config.schema import DataConfig
from agent_tunix.data.dropped import RowError

CHOSEN, REJECTED = "chosen", "rejected"
_PROMPT = "prompt"


def fit_pairs(data: DataConfig, columns: Mapping[str, Any]) -> DataConfig:
    """Return the configuration with the columns of preference data, if the first row has pairs.

    A column that the configuration sets, or that the row has under its default name, stays. The prompt is in the column
    `prompt`, and there is no reference answer.

    Args:
        data: Names the columns of the problem and the answer.
        columns: Columns of the first row, before they are renamed.
    """
    named = {*columns, *data.columns}
    if not {CHOSEN, REJECTED} <= named:
        return data
    default = DataConfig()
    changes: dict[str, Any] = {}
    if data.prompt_column == default.prompt_column and data.prompt_column not in named:
        changes["prompt_column"] = _PROMPT
    if data.answer_column == default.answer_column and data.answer_column not in named:
        changes["answer_column"] = None
    return dataclasses.replace(data, **changes)


def with_shared_prompt(columns: dict[str, Any], prompt_column: str) -> dict[str, Any]:
    """Return the columns of a row with the messages that its two conversations share as its prompt, if it has none.

    Raises:
        RowError: The conversations share no message, or are texts.
    """
    if prompt_column.partition(".")[0] in columns or not {CHOSEN, REJECTED} <= columns.keys():
        return columns
    chosen, rejected = columns[CHOSEN], columns[REJECTED]
    if not (isinstance(chosen, list | tuple) and isinstance(rejected, list | tuple)):
        raise RowError(
            f"no column {prompt_column!r}, which {CHOSEN!r} and {REJECTED!r} require as texts; split them into prompt"
            " and response, or make each a list of messages"
        )
    if not (shared := shared_messages(chosen, rejected)):
        raise RowError(f"no column {prompt_column!r}, and {CHOSEN!r} and {REJECTED!r} begin with different messages")
    return {**columns, prompt_column: shared}


def shared_messages(chosen: Any, rejected: Any) -> list[Any]:
    """Return the messages with which both conversations begin, apart from their last ones; none for texts."""
    if not (isinstance(chosen, list | tuple) and isinstance(rejected, list | tuple)):
        return []
    shared = []
    for one, other in zip(chosen[:-1], rejected[:-1], strict=False):
        if one != other:
            break
        shared.append(one)
    return shared
