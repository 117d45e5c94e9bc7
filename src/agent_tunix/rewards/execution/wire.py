"""Scores as plain data, the form in which workers send them.

Workers that run other people's code reply in the format of `plain_wire`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.visible_text import escape_hidden, one_line

LONGEST_DETAIL = 4000
LONGEST_TEXT = 20_000
LARGEST_EXTRA_ITEMS = 10_000
# Placeholder for omitted items.
TOO_MUCH = "… and more"

PlainScore = tuple[float | None, str, str, dict[str, Any], float, dict[str, float | None], dict[str, float]]


def to_plain(score: Score) -> PlainScore:
    """Return a score as plain data that any process can read."""
    return (
        None if score.value is None else float(score.value),
        str(score.outcome.value),
        _clip(score.detail),
        plain_mapping(score.extras),
        float(score.seconds),
        {_clip(name): None if value is None else float(value) for name, value in score.components.items()},
        {_clip(name): float(value) for name, value in score.metrics.items()},
    )


def from_plain(plain: PlainScore) -> Score:
    """Return the score of plain data, with the hidden characters of its texts escaped."""
    value, outcome, detail, extras, seconds, components, metrics = plain
    named = {one_line(name): part for name, part in components.items()}
    measured = {one_line(name): metric for name, metric in metrics.items()}
    return Score(value, named, Outcome(outcome), one_line(detail), _visible(extras), seconds, metrics=measured)


def _visible(value: Any) -> Any:
    """Return plain data with the hidden characters of its texts escaped; names are put on one line."""
    if isinstance(value, str):
        return escape_hidden(value)
    if isinstance(value, dict):
        return {one_line(name): _visible(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(map(_visible, value))
    return value


def plain_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values of users in built-in types, of limited size."""
    return _plain_mapping(values, iter(range(LARGEST_EXTRA_ITEMS)), depth=7)


def _plain(value: Any, budget: Iterator[int], depth: int) -> Any:
    """Return a value in built-in types. Other types become text; excess items become a placeholder."""
    kind = type(value)
    if next(budget, None) is None:
        return TOO_MUCH
    if kind in (bool, float, type(None)):
        return value
    if kind is int:
        return value if value.bit_length() < 4096 else "…"
    if kind is str:
        return _clip(value, LONGEST_TEXT)
    if depth and kind in (list, tuple, set, frozenset):
        return kind(_plain_items(value, budget, depth))
    if depth and isinstance(value, Mapping):
        return _plain_mapping(value, budget, depth)
    if hasattr(value, "tolist") and getattr(value, "nbytes", 0) <= 8 * LARGEST_EXTRA_ITEMS:  # NumPy, PyTorch
        return _plain(value.tolist(), budget, depth)
    return _clip(repr(value), LONGEST_TEXT)


def _plain_items(values: Iterable[Any], budget: Iterator[int], depth: int) -> Iterator[Any]:
    for value in values:
        plain = _plain(value, budget, depth - 1)
        yield plain
        if plain is TOO_MUCH:
            break


def _plain_mapping(values: Mapping[Any, Any], budget: Iterator[int], depth: int) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        found[_clip(name)] = plain = _plain(value, budget, depth - 1)
        if plain is TOO_MUCH:
            break
    return found


def _clip(text: object, longest: int = LONGEST_DETAIL) -> str:
    # The result is a plain str, not a subclass, without characters that cannot be encoded.
    plain = str.__str__(text) if isinstance(text, str) else str(text)
    if len(plain) > longest:
        plain = plain[:longest] + "…"
    return "".join([plain]).encode("utf-8", "replace").decode() if not plain.isascii() else "".join([plain])
