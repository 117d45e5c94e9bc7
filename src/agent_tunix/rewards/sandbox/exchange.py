"""What a program and the tests of it say to each other: lines of JSON, in which plain data go by value.

The two run in processes of their own, so that a program can neither read what its tests expect nor decide whether they
pass. Numbers, texts and containers arrive as what they are, and are compared by the tests' own process; an object of
a class of the program's goes by reference. Reading never runs code of the other side.
"""

import collections
import datetime
import decimal
import fractions
import json
import os
from collections.abc import Callable
from typing import Any

Encode = Callable[[Any], Any]
_SMALL = 2**53

# Each type's parts, each of them plain, and how it is made of them.
_TYPES: dict[type, tuple[Callable[[Any], list[Any]], Callable[..., Any]]] = {
    tuple: (list, lambda *items: tuple(items)),
    set: (list, lambda *items: set(items)),
    frozenset: (list, lambda *items: frozenset(items)),
    dict: (lambda value: [list(pair) for pair in value.items()], lambda *pairs: dict(pairs)),
    collections.OrderedDict: (
        lambda value: [list(pair) for pair in value.items()],
        lambda *pairs: collections.OrderedDict(pairs),
    ),
    collections.Counter: (
        lambda value: [list(pair) for pair in value.items()],
        lambda *pairs: collections.Counter(dict(pairs)),
    ),
    collections.deque: (list, lambda *items: collections.deque(items)),
    bytes: (lambda value: [value.hex()], bytes.fromhex),
    bytearray: (lambda value: [value.hex()], bytearray.fromhex),
    complex: (lambda value: [value.real, value.imag], complex),
    range: (lambda value: [value.start, value.stop, value.step], range),
    fractions.Fraction: (lambda value: [value.numerator, value.denominator], fractions.Fraction),
    decimal.Decimal: (lambda value: [str(value)], decimal.Decimal),
    datetime.date: (lambda value: [value.isoformat()], datetime.date.fromisoformat),
    datetime.datetime: (lambda value: [value.isoformat()], datetime.datetime.fromisoformat),
    datetime.timedelta: (lambda value: [value.days, value.seconds, value.microseconds], datetime.timedelta),
}
_NAMES = {kind: f"{kind.__module__}.{kind.__qualname__}" for kind in _TYPES}
_MAKERS = {_NAMES[kind]: make for kind, (_, make) in _TYPES.items()}
MUTABLE = (list, dict, set, bytearray, collections.deque, collections.Counter, collections.OrderedDict)


def encode(value: Any, reference: Encode) -> Any:
    """A value as JSON has it.

    Args:
        value: Anything.
        reference: Makes a mapping of what is no plain data.
    """
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return value
    if kind is int:
        return value if -_SMALL < value < _SMALL else {"int": hex(value)}  # decimals of any length would be refused
    if kind is list:
        return [encode(item, reference) for item in value]
    if kind is collections.defaultdict:
        kind, value = dict, dict(value)
    if kind in _TYPES:
        return {"type": _NAMES[kind], "parts": [encode(part, reference) for part in _TYPES[kind][0](value)]}
    return reference(value)


def decode(data: Any, dereference: Callable[[dict[str, Any]], Any]) -> Any:
    """The value that JSON stands for.

    Args:
        data: What `encode` gave, or anything at all.
        dereference: Makes a value of a mapping that stands for no plain data.

    Raises:
        ValueError, TypeError, LookupError, ArithmeticError, RecursionError: It stands for nothing.
    """
    if isinstance(data, list):
        return [decode(item, dereference) for item in data]
    if not isinstance(data, dict):
        return data
    if "int" in data:
        return int(data["int"], 16)
    if "type" in data:
        return _MAKERS[data["type"]](*(decode(part, dereference) for part in data["parts"]))
    return dereference(data)


def plain_of(value: Any) -> tuple[Any] | tuple[()]:
    """What a value of a class derived from a plain type is equal to, such as a named tuple; () if it is no such one."""
    kinds: tuple[type[Any], ...] = (str, int, float, tuple, list, set, frozenset, dict)
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    return () if kind is None else (kind(value),)


class Line:
    """Messages to and from the other process, one a line.

    Args:
        reading: File descriptor that is read from.
        writing: File descriptor that is written to.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = os.fdopen(reading, "rb")
        self._writing = writing

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; raises OSError if no one reads."""
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._writing, data) :]

    def receive(self) -> dict[str, Any]:
        """The next message.

        Raises:
            EOFError: There is none to come.
            ValueError: It is no message.
        """
        line = self._reading.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the other process has ended")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message is an object")
        return message
