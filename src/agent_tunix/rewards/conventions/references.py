"""The reference of a row, by the name that a convention uses for it."""

from collections.abc import Mapping
from typing import Any

from agent_tunix.rewards.conventions.values import own_copy

# Names of the reference in the conventions, in the order in which a row without `answer` is searched for them.
REFERENCE_NAMES = ("answer", "ground_truth", "label", "solution")


def reference_of(columns: Mapping[str, Any], name: str) -> Any:
    """Return a copy of the reference of a row for a parameter of this name.

    It is the row's own column of the name, or else `answer`, the reference of `data.answer_column`, or else the first
    column of another name of the reference; None if the row has none of them. For `ground_truth`, verl's nested
    `reward_model.ground_truth` comes before `answer`.
    """
    if name in columns:
        return own_copy(columns[name])
    nested = columns.get("reward_model")
    if name == "ground_truth" and isinstance(nested, Mapping) and "ground_truth" in nested:
        return own_copy(nested["ground_truth"])
    return next((own_copy(columns[other]) for other in REFERENCE_NAMES if other in columns), None)
