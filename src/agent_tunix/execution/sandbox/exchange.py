"""Messages between a program's process and its tests' process: lines of JSON, with plain data passed by value.

Separate processes prevent a program from reading what its tests expect and from deciding whether they pass. Numbers,
texts, containers and a few plain types of the standard library arrive as equal values, rebuilt from their parts;
everything else arrives as a handle. Reading a message runs no code of the other side, and looks up names only in the
tables here.
"""

from __future__ import annotations

import collections
import json
import os

TYPE_CHECKING = False  # importing typing only for annotations would slow every start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LONGEST_MESSAGE_BYTES = 2**24
_SMALL = 2**53

# Types that a function can change in an argument, and immutable types that classes can be derived from.
MUTABLE = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict)
IMMUTABLE = (str, int, float, tuple, frozenset, bytes)


def _pairs(value: Any) -> list[Any]:
    return [list(pair) for pair in value.items()]


def _hex(value: Any) -> list[Any]:
    return [value.hex()]


def _iso(value: Any) -> list[Any]:
    return [value.isoformat()]


# Types whose parts are values themselves, by name: a function to get the parts, and one to rebuild from a list of them.
_CONTAINERS: dict[str, tuple[Callable[[Any], list[Any]], Callable[[Any], Any]]] = {
    "builtins.tuple": (list, tuple),
    "builtins.set": (list, set),
    "builtins.frozenset": (list, frozenset),
    "builtins.dict": (_pairs, dict),
    "collections.OrderedDict": (_pairs, collections.OrderedDict),
    "collections.Counter": (_pairs, lambda pairs: collections.Counter(dict(pairs))),
    "collections.defaultdict": (_pairs, dict),
    "collections.deque": (list, collections.deque),
}
# Types whose parts are numbers and texts.
_PARTS: dict[str, Callable[[Any], list[Any]]] = {
    "builtins.bytes": _hex,
    "builtins.bytearray": _hex,
    "builtins.complex": lambda value: [value.real, value.imag],
    "builtins.range": lambda value: [value.start, value.stop, value.step],
    "fractions.Fraction": lambda value: [value.numerator, value.denominator],
    "decimal.Decimal": lambda value: [str(value)],
    "datetime.date": _iso,
    "datetime.time": _iso,
    "datetime.datetime": _iso,
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
}


def _make(name: str, parts: list[Any]) -> Any:
    """Return a value of one of the types in `_PARTS`, made from its parts."""
    import datetime
    import decimal
    import fractions

    makers: dict[str, Callable[..., Any]] = {
        "builtins.bytes": bytes.fromhex,
        "builtins.bytearray": bytearray.fromhex,
        "builtins.complex": complex,
        "builtins.range": range,
        "fractions.Fraction": fractions.Fraction,
        "decimal.Decimal": decimal.Decimal,
        "datetime.date": datetime.date.fromisoformat,
        "datetime.time": datetime.time.fromisoformat,
        "datetime.datetime": datetime.datetime.fromisoformat,
        "datetime.timedelta": datetime.timedelta,
    }
    if any(type(part) not in (int, float, str) for part in parts):
        raise ValueError(f"parts of {name} must be numbers or texts")
    return makers[name](*parts)


def encode(value: Any, reference: Callable[[Any], Any]) -> Any:
    """Return a value as JSON data.

    Args:
        value: Any value.
        reference: Returns a mapping for a value that is not plain data.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"int": hex(value)}  # int() limits the length of decimals only
    if kind is list:
        return [encode(item, reference) for item in value]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _CONTAINERS:
        return {"type": name, "parts": [encode(part, reference) for part in _CONTAINERS[name][0](value)]}
    if name in _PARTS:
        return {"type": name, "parts": [encode(part, reference) for part in _PARTS[name](value)]}
    return reference(value)


def decode(data: Any, dereference: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the value that JSON data represents.

    Args:
        data: Data from `encode`, or invalid data.
        dereference: Returns the value for a mapping that is not plain data.

    Raises:
        ValueError, TypeError, LookupError, ArithmeticError, RecursionError: The data is not valid.
    """
    if isinstance(data, list):
        return [decode(item, dereference) for item in data]
    if not isinstance(data, dict):
        return data
    if "int" in data:
        return int(data["int"], 16)
    if "type" not in data:
        return dereference(data)
    name, parts = data["type"], decode(data["parts"], dereference)
    if not isinstance(name, str) or type(parts) is not list:
        raise ValueError("a type must have a name and a list of parts")
    return _CONTAINERS[name][1](parts) if name in _CONTAINERS else _make(name, parts)


class Line:
    """Connection to the other process, one message per line.

    Args:
        reading: File descriptor to read from.
        writing: File descriptor to write to.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = os.fdopen(reading, "rb")
        self._writing = writing

    def send(self, message: dict[str, Any]) -> None:
        """Send a message.

        Raises:
            OSError: The other end is closed.
            ValueError: The message is too long.
        """
        data = json.dumps(message).encode() + b"\n"
        if len(data) > LONGEST_MESSAGE_BYTES:
            raise ValueError(f"a message must have at most {LONGEST_MESSAGE_BYTES} bytes, not {len(data)}")
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            EOFError: The other process has ended, or its message is too long.
            ValueError, RecursionError: The line is not a message.
        """
        line = self._reading.readline(LONGEST_MESSAGE_BYTES)
        if not line.endswith(b"\n"):
            raise EOFError("the other process has ended, or sent a message that is too long")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message must be an object")
        return message
