"""Scores of returned values, copies of arguments that user code may modify, and the reference of a row."""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from agent_tunix.rewards.sample import LARGEST_VALUE, Outcome, Score

_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})


def own_copy(value: Any) -> Any:
    """Return a copy that shares nothing mutable."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if kind is list:
        return [own_copy(item) for item in value]
    if kind is dict:
        return {name: own_copy(item) for name, item in value.items()}
    if callable(value):  # a copy of a bound method would have a copy of its object
        return value
    return copy.deepcopy(value)


def to_number(returned: Any) -> float | str:
    """Return the returned number, or a message about why it is not one."""
    if getattr(returned, "ndim", None) == 0 and hasattr(returned, "item"):
        returned = returned.item()  # an array or tensor without axes
    if not isinstance(returned, float | Real | Decimal | np.bool_):
        return f"returned {describe_kind(returned)}"
    try:
        value = float(returned)
    except Exception as error:  # the integer is too large, or the number has a user's own type
        return f"returned a number that cannot be read: {type(error).__name__}: {error}"
    if abs(value) <= LARGEST_VALUE:
        return value
    return f"returned {value}; a reward is finite and at most {LARGEST_VALUE:g} in size"


def to_score(returned: Any, expected: str) -> Score:
    """Return the score of a returned number, None ("not applicable") or `Score`; errors quote `expected`."""
    if type(returned) is float and abs(returned) <= LARGEST_VALUE:  # the common case, first
        return Score(returned)
    if isinstance(returned, Score):
        try:
            return _own_score(returned)
        except Exception as error:  # a user may put anything into it
            return Score.failed(Outcome.ERROR, f"returned a Score that cannot be used: {type(error).__name__}: {error}")
    if returned is None:
        return Score.failed(Outcome.NOT_APPLICABLE, "the reward returned None")
    number = to_number(returned)
    if isinstance(number, float):
        return Score(number)
    return Score.failed(Outcome.ERROR, number if "; " in number else f"{number}; {expected}")


def _own_score(score: Score) -> Score:
    """Return a checked copy of a score that user code made, without its parts, terms and seconds.

    Raises:
        TypeError: A field has a wrong type.
        ValueError: The outcome is unknown, or a component or metric is not a number.
    """
    for field, kind in (("components", Mapping), ("extras", Mapping), ("metrics", Mapping), ("detail", str)):
        if not isinstance(value := getattr(score, field), kind):
            requirement = "text" if kind is str else "a mapping"
            raise TypeError(f"its `{field}` must be {requirement}, not {describe_kind(value)}")
    return Score(
        score.value,
        {str(name): None if value is None else _number(name, value) for name, value in score.components.items()},
        Outcome(score.outcome),
        score.detail,
        dict(score.extras),
        metrics={str(name): _number(name, value) for name, value in score.metrics.items()},
        turns=score.turns,
    )


def _number(name: object, value: Any) -> float:
    number = to_number(value)
    if isinstance(number, str):
        raise ValueError(f"{str(name)!r} must be a finite number, not {number.removeprefix('returned ')}")
    return number


def to_scores(returned: Any, count: int, read: Callable[[Any], Score], expected: str) -> list[Score]:
    """Convert a returned list or array, which has one value per completion, to scores with `read`.

    If the values cannot be matched to the `count` completions, each score is an error that quotes `expected`.
    """
    if getattr(returned, "ndim", None) == 1 and hasattr(returned, "tolist"):
        returned = returned.tolist()  # an array or tensor
    if isinstance(returned, list | tuple):
        if len(returned) == count:
            return [read(value) for value in returned]
        fault = f"returned {len(returned)} values for {count} completions"
    else:
        fault = f"returned {describe_kind(returned)}; {expected}"
    return [Score.failed(Outcome.ERROR, fault)] * count


def describe_kind(returned: Any) -> str:
    """Return a description such as `a list of length 3`. A coroutine that will not be awaited is closed."""
    if returned is None:
        return "None"
    if inspect.iscoroutine(returned):
        returned.close()
        return "a coroutine (only what an `async def` returns is awaited)"
    kind = type(returned).__name__
    size = ""
    if isinstance(returned, Sequence | Mapping | np.ndarray) and getattr(returned, "ndim", 1) != 0:
        size = f" of length {len(returned)}"
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}{size}"


# Columns that may hold the reference, in the order of search.
REFERENCE_NAMES = ("answer", "ground_truth", "label", "solution")


def reference_of(columns: Mapping[str, Any], name: str) -> Any:
    """Return a copy of the row's reference for a parameter of this name; None if the row has none.

    The row's column of that name comes first, then `answer` (from `data.answer_column`), then the other columns of
    `REFERENCE_NAMES`. For `ground_truth`, verl's nested `reward_model.ground_truth` comes before `answer`.
    """
    if name in columns:
        return own_copy(columns[name])
    nested = columns.get("reward_model")
    if name == "ground_truth" and isinstance(nested, Mapping) and "ground_truth" in nested:
        return own_copy(nested["ground_truth"])
    return next((own_copy(columns[other]) for other in REFERENCE_NAMES if other in columns), None)
