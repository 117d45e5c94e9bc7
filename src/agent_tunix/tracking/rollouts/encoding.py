r"""Encoding of arbitrary values as JSON text and back: dataset columns, extras and other values from users.

JSON's own types (null, booleans, integers, finite numbers, text, lists, objects with text keys) are encoded as
themselves. Everything else becomes an object with the key `$type`:

| `$type` | Value | Other keys |
| --- | --- | --- |
| `float` | a number that is not finite | `value`: `nan`, `inf` or `-inf` |
| `int` | an integer of more than 4096 bits | `hex` |
| `bytes` | bytes | `base64` |
| `tuple`, `set`, `frozenset` | that collection | `items` |
| `mapping` | a mapping with keys that are not text, or with the key `$type` | `items`: pairs |
| `scalar` | a NumPy scalar | `dtype`, `value` |
| `array` | a NumPy array, or an array that converts to one | `dtype`, `shape`, `values` (flat) |
| `datetime`, `date`, `decimal` | that type of Python's standard library | `value` |
| `response` | in `messages`: the text of the column `response` | |
| `opaque` | anything else, reduced to a description | `class`, `text` |

Text that is not valid Unicode (a lone surrogate) is kept, escaped as `\ud800`.
"""

import base64
import binascii
import collections
import datetime
import decimal
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_TAG = "$type"
_DEEPEST = 60
_MOST_VALUES = 1_000_000
_LONGEST_TEXT = 2000
_LARGEST_INT_BITS = 4096
# Most members of a set, or keys of a mapping, that may have the same hash.
_MOST_OF_A_HASH = 100
# Every text of an array takes the memory of the longest one. An array may take this many bytes for each value and each
# character of text. Beyond that, all arrays that are read together may take `_MOST_PADDING_BYTES`.
_BYTES_PER_CHARACTER = 16
_MOST_PADDING_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Opaque:
    """The description of a value that could not be stored."""

    kind: str  # its class, with the module
    text: str  # its `repr`, shortened


class _Response:
    """Placeholder in messages for the response, which has its own column."""


RESPONSE: Final = _Response()


def encode(value: Any) -> str:
    """Return a value as JSON text in valid Unicode; never raises because of the value."""
    text = json.dumps(_Tagging().tag(value, 0), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            # In ASCII output a lone surrogate is escaped like any other character.
            return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def decode(text: str, padding: "Padding | None" = None) -> Any:
    """Return the value that `encode` was given.

    Arrays of other libraries come back as NumPy arrays, subclasses of built-in types as the built-in types, and values
    that could not be stored as `Opaque`. Texts that are read together share a `padding`.

    Raises:
        ValueError: The text was not written by `encode`, or its arrays take far more memory than it.
    """
    padding = padding or Padding()
    try:
        return json.loads(text, object_hook=lambda stored: _untag(stored, padding))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{text[:200]!r} is not a stored value: {type(error).__name__}: {error}") from error


# --- writing ---------------------------------------------------------------------------------------------------------


class _Tagging:
    """A converter of one value to JSON types; tracks depth, size and enclosing objects to stop at cycles."""

    def __init__(self) -> None:
        self._above: set[int] = set()
        self._left = _MOST_VALUES

    def tag(self, value: Any, depth: int) -> Any:
        """Return the value, or an object that represents it."""
        self._left -= 1
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if value.bit_length() <= _LARGEST_INT_BITS else {_TAG: "int", "hex": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {_TAG: "float", "value": repr(value)}
        if depth > _DEEPEST or self._left < 0 or id(value) in self._above:
            return _describe(value)
        self._above.add(id(value))
        try:
            return self._tag_other(value, depth + 1)
        except Exception:  # a user's object may raise anything when it is inspected
            return _describe(value)
        finally:
            self._above.discard(id(value))

    def _tag_other(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return self._items(value, depth)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, tuple):
            return {_TAG: "tuple", "items": self._items(value, depth)}
        if isinstance(value, set | frozenset):
            name = "set" if isinstance(value, set) else "frozenset"
            return {_TAG: name, "items": sorted(self._items(value, depth), key=json.dumps)}
        if isinstance(value, bytes | bytearray | memoryview):
            return {_TAG: "bytes", "base64": base64.b64encode(value).decode("ascii")}
        if isinstance(value, np.generic):
            array = _storable(np.asarray(value))
            return {_TAG: "scalar", "dtype": array.dtype.str, "value": self.tag(array.item(), depth)}
        if isinstance(value, str):  # a subclass, such as StrEnum
            return str.__str__(value)
        if isinstance(value, int | float):
            return self.tag(int.__int__(value) if isinstance(value, int) else float.__float__(value), depth)
        if isinstance(value, datetime.datetime | datetime.date):
            name = "datetime" if isinstance(value, datetime.datetime) else "date"
            return {_TAG: name, "value": value.isoformat()}
        if isinstance(value, decimal.Decimal):
            return {_TAG: "decimal", "value": str(value)}
        if isinstance(value, _Response):
            return {_TAG: "response"}
        if hasattr(value, "__array__"):
            array = _storable(np.asarray(value))
            values = self._items(array.reshape(-1).tolist(), depth)
            return {_TAG: "array", "dtype": array.dtype.str, "shape": list(array.shape), "values": values}
        return _describe(value)

    def _items(self, values: Iterable[Any], depth: int) -> list[Any]:
        return [self.tag(item, depth) for item in values]

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        if all(type(name) is str for name in value) and _TAG not in value:
            return {name: self.tag(item, depth) for name, item in value.items()}
        pairs = [[self.tag(name, depth), self.tag(item, depth)] for name, item in value.items()]
        return {_TAG: "mapping", "items": pairs}


def _storable(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return the array if `tolist` represents it without loss; raise TypeError if it does not."""
    if array.dtype.kind not in "biufU" or (array.dtype.itemsize > 8 and array.dtype.kind == "f"):
        raise TypeError(array.dtype)
    return array


def _describe(value: Any) -> dict[str, str]:
    kind = type(value)
    try:
        text = repr(value) if not isinstance(value, list | dict | tuple) else "too deep, too large or part of itself"
    except Exception as error:
        text = f"its repr raised {type(error).__name__}"
    return {_TAG: "opaque", "class": f"{kind.__module__}.{kind.__qualname__}", "text": str(text)[:_LONGEST_TEXT]}


# --- reading ---------------------------------------------------------------------------------------------------------


class Padding:
    """The memory that arrays may still take beyond that of their text, shared by all texts that are read together."""

    def __init__(self) -> None:
        self._left = _MOST_PADDING_BYTES

    def array(self, name: str, values: list[Any]) -> "np.ndarray[Any, Any]":
        """Return a flat array; raise ValueError for a type that is not stored, or if too much memory is taken."""
        dtype = np.dtype(name)
        length = sum(1 + len(value) if isinstance(value, str) else 1 for value in values)
        self._left -= max(dtype.itemsize * len(values) - _BYTES_PER_CHARACTER * length, 0)
        is_flat = all(type(value) in (bool, int, float, str) for value in values)
        if dtype.kind not in "biufU" or not is_flat or self._left < 0:
            raise ValueError(f"{len(values)} values of the type {name}")
        return np.array(values, dtype)


def _untag(stored: dict[str, Any], padding: Padding) -> Any:
    """Return the value that a JSON object represents; objects inside it are converted already."""
    if _TAG not in stored:
        return stored
    if stored[_TAG] == "array":
        return padding.array(stored["dtype"], stored["values"]).reshape(stored["shape"])
    if stored[_TAG] == "scalar":
        return padding.array(stored["dtype"], [stored["value"]])[0]
    return _READERS[stored[_TAG]](stored)


def _read_bytes(stored: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(stored["base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _spread(items: list[Any], keys: list[Any]) -> list[Any]:
    """Return the items; refuse many keys with the same hash, which take quadratic time and only an attacker makes."""
    if keys and max(collections.Counter(map(hash, keys)).values()) > _MOST_OF_A_HASH:
        raise ValueError(f"more than {_MOST_OF_A_HASH} members of a set or mapping have the same hash")
    return items


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "float": lambda stored: float(stored["value"]),
    "int": lambda stored: int(stored["hex"], 16),
    "bytes": _read_bytes,
    "tuple": lambda stored: tuple(stored["items"]),
    "set": lambda stored: set(_spread(stored["items"], stored["items"])),
    "frozenset": lambda stored: frozenset(_spread(stored["items"], stored["items"])),
    "mapping": lambda stored: dict(_spread(stored["items"], [key for key, _ in stored["items"]])),
    "datetime": lambda stored: datetime.datetime.fromisoformat(stored["value"]),
    "date": lambda stored: datetime.date.fromisoformat(stored["value"]),
    "decimal": lambda stored: decimal.Decimal(stored["value"]),
    "response": lambda stored: RESPONSE,
    "opaque": lambda stored: Opaque(stored["class"], stored["text"]),
}
