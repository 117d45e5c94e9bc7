"""Scores as plain data: one form for replies of workers, other processes, stored rollouts and pages.

`to_data` returns the fields of a score as a dict, and `from_data` checks every part of such a dict. Neither changes a
text or an extra. `tidy` does: a reward can put anything into its extras, so a tidy score has only built-in types, of
limited size, without characters that a terminal would obey.

A worker sends `pack(score)`. Other people's code in a worker can forge a reply, so the trainer reads its replies with
`unpack`, which tidies them again: a valid reply can be false, but only about the scores that the code was asked for.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from agent_tunix.rewards.sample import LARGEST_VALUE, Outcome, Score, Term
from agent_tunix.visible_text import escape_hidden, one_line

LONGEST_DETAIL = 4000
LONGEST_TEXT = 20_000
# Limits on the extras of a score, because every completion's are stored.
MOST_ITEMS = 10_000
MOST_CHARACTERS = 2**17
_DEEPEST = 7
_LARGEST_INT_BITS = 4096
# Placeholder for omitted items.
TOO_MUCH = "… and more"

_FIELDS = frozenset(field.name for field in fields(Score))
_TERM_FIELDS = frozenset(field.name for field in fields(Term))

ScoreData = dict[str, Any]
Value = TypeVar("Value")


def pack(score: Score) -> ScoreData:
    """Return a tidy score as the data of a worker's reply."""
    return to_data(tidy(score))


def unpack(data: Any) -> Score:
    """Return the tidy score of a reply that other people's code may have forged.

    Raises:
        ValueError: The data is not a score, or has parts, which only a mixture of components makes.
    """
    if isinstance(data, Mapping) and (data.get("parts") or data.get("terms")):
        raise ValueError("the score of a single reward has no parts")
    return tidy(from_data(data))


# --- fields -----------------------------------------------------------------------------------------------------------


def show_fields(score: Score, *names: str) -> ScoreData:
    """Return some of the fields of `to_data`, for a page."""
    data = to_data(score)
    return {name: data[name] for name in names}


def to_data(score: Score) -> ScoreData:
    """Return the fields of a score, in JSON's types but for its extras; `turns` only if the score has some."""
    data = {
        "value": score.value,
        "outcome": score.outcome.value,
        "detail": score.detail,
        "extras": dict(score.extras),
        "seconds": score.seconds,
        "components": dict(score.components),
        "metrics": dict(score.metrics),
        "parts": {name: to_data(part) for name, part in score.parts.items()},
        "terms": {name: asdict(term) | {"outcome": term.outcome.value} for name, term in score.terms.items()},
    }
    return data | {"turns": list(score.turns)} if score.turns else data


def from_data(data: Any) -> Score:
    """Return the score of `to_data`.

    Raises:
        ValueError: A field is missing, unknown or of another form, or a number is not finite or too large.
    """
    if not isinstance(data, Mapping) or data.keys() | {"turns"} != _FIELDS:
        raise ValueError("a score must be a mapping with the fields of a score")
    return Score(
        _number(data["value"]),
        _read_each(data["components"], _number),
        Outcome(data["outcome"]),
        _text(data["detail"]),
        _mapping(data["extras"]),
        _seconds(data["seconds"]),
        _read_each(data["parts"], from_data),
        _read_each(data["terms"], _term),
        _read_each(data["metrics"], _required),
        _read_turns(data.get("turns", ())),
    )


def _read_turns(turns: Any) -> tuple[float | None, ...]:
    if not isinstance(turns, list | tuple) or len(turns) > MOST_ITEMS:
        raise ValueError(f"the turns of a score must be a list of at most {MOST_ITEMS:,} numbers")
    return tuple(map(_number, turns))


def _term(data: Any) -> Term:
    if not isinstance(data, Mapping) or data.keys() != _TERM_FIELDS:
        raise ValueError("a term must be a mapping with the fields of a term")
    weight, value = _required(data["weight"], math.inf), _number(data["value"], math.inf)
    return Term(weight, value, Outcome(data["outcome"]), bool(data["gate_shut"]), _text(data["detail"]))


def _number(value: Any, largest: float = LARGEST_VALUE) -> float | None:
    # Compared before it is converted, because the conversion fails for large integers.
    if value is None or (type(value) in (int, float) and -largest <= value <= largest):
        return None if value is None else float(value)
    raise ValueError(f"a number of a score must be finite and at most {largest:g}, not {str(value)[:50]}")


def _required(value: Any, largest: float = LARGEST_VALUE) -> float:
    if (number := _number(value, largest)) is None:
        raise ValueError("a number of a score is missing")
    return number


def _seconds(value: Any) -> float:
    if (seconds := _required(value)) < 0:
        raise ValueError(f"the time of a score must not be negative: {seconds}")
    return seconds


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text of a score is a {type(value).__name__}")
    return value


def _read_each(values: Any, read: Callable[[Any], Value]) -> dict[str, Value]:
    return {name: read(value) for name, value in _mapping(values).items()} if values != {} else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"a mapping of a score is a {type(value).__name__}")
    return value


# --- tidying ----------------------------------------------------------------------------------------------------------


def tidy(score: Score) -> Score:
    """Return the score in built-in types, with extras of limited size and texts without hidden characters."""
    if not (score.detail or score.components or score.extras or score.parts or score.terms or score.metrics):
        return score
    return Score(
        score.value,
        {name: None if value is None else float(value) for name, value in _named(score.components)},
        Outcome(score.outcome),
        short_line(score.detail),
        plain_mapping(score.extras),
        float(score.seconds),
        {name: tidy(part) for name, part in _named(score.parts)},
        {name: replace(term, detail=short_line(term.detail)) for name, term in _named(score.terms)},
        {name: float(value) for name, value in _named(score.metrics)},
        score.turns,
    )


def short_line(text: object) -> str:
    """Return a text on one line, of limited length, without hidden characters."""
    return _cut(one_line(_exact(text, LONGEST_DETAIL)), LONGEST_DETAIL)


def plain_mapping(values: Mapping[Any, Any], *, shown: bool = True) -> dict[str, Any]:
    """Return named values of users in built-in types, of limited size.

    Arrays become lists, and values of other types their `repr`. Once there are too many items or characters, a
    placeholder stands for the rest.

    Args:
        values: The values by name.
        shown: True if they are for people: hidden characters are escaped, and all texts together are limited. False
            if a reward reads them.
    """
    room = _Room() if shown else _Room(characters=math.inf, escapes=False)
    return _plain_mapping(values, room, _DEEPEST) if values else {}


@dataclass(slots=True)
class _Room:
    """Numbers of items and characters that may still be taken."""

    items: int = MOST_ITEMS
    characters: float = MOST_CHARACTERS
    escapes: bool = True

    def text(self, value: str) -> str:
        """Return a text, or a placeholder if there is no room for it."""
        text = _exact(value, LONGEST_TEXT)
        return self._take(_cut(escape_hidden(text) if self.escapes else text, LONGEST_TEXT))

    def name(self, value: object) -> str:
        """Return a key as text, or a placeholder if there is no room for it."""
        return self._take(short_line(value) if self.escapes else _cut(_exact(value, LONGEST_DETAIL), LONGEST_DETAIL))

    def _take(self, text: str) -> str:
        self.characters -= len(text)
        return text if self.characters >= 0 else TOO_MUCH


def _plain(value: Any, room: _Room, depth: int) -> Any:
    kind = type(value)
    room.items -= 1
    if room.items < 0:
        return TOO_MUCH
    if kind in (bool, float, type(None)):
        return value
    if kind is int:
        return value if value.bit_length() < _LARGEST_INT_BITS else "…"
    if kind is str:
        return room.text(value)
    if depth and kind in (list, tuple, set, frozenset):
        return kind(_plain_items(value, room, depth))
    if depth and isinstance(value, Mapping):
        return _plain_mapping(value, room, depth)
    if hasattr(value, "tolist") and getattr(value, "nbytes", 0) <= 8 * MOST_ITEMS:  # NumPy, PyTorch
        return _plain(value.tolist(), room, depth)
    return room.text(repr(value))


def _plain_items(values: Iterable[Any], room: _Room, depth: int) -> Iterator[Any]:
    for value in values:
        plain = _plain(value, room, depth - 1)
        yield plain
        if plain is TOO_MUCH:
            break


def _plain_mapping(values: Mapping[Any, Any], room: _Room, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in values.items():
        name = room.name(name)
        plain[name] = _plain(value, room, depth - 1)
        if plain[name] is TOO_MUCH:
            break
    return plain


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the first items of a mapping, with names that can be shown."""
    for name, value in itertools.islice(values.items(), MOST_ITEMS):
        yield short_line(name), value


def _exact(text: object, longest: int) -> str:
    """Return the beginning of a text as `str`, not a subclass, one character longer than `longest` if it is cut."""
    return (str.__str__(text) if isinstance(text, str) else str(text))[: longest + 1]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"
