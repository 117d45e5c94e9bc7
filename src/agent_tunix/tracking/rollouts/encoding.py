r"""Encoding of values as JSON text and back: dataset columns, messages, extras and other values from users.

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
import datetime
import decimal
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_TAG = "$type"
_LONGEST_TEXT = 2000
_LARGEST_INT_BITS = 4096


@dataclass(frozen=True, slots=True)
class Opaque:
    """The description of a value that could not be stored."""

    kind: str  # its class, with the module
    text: str  # its `repr`, shortened


class _Response:
    """Placeholder in messages for the response, which has its own column."""


RESPONSE: Final = _Response()


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type that JSON does not have: the key of its content, and the conversions to and from the content."""

    type: type | tuple[type, ...]
    key: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


# In the order in which they are tried: a datetime is a date too.
_KINDS = {
    "tuple": _Kind(tuple, "items", list, tuple),
    "set": _Kind(set, "items", lambda value: sorted(value, key=repr), set),
    "frozenset": _Kind(frozenset, "items", lambda value: sorted(value, key=repr), frozenset),
    "bytes": _Kind(
        (bytes, bytearray, memoryview), "base64", lambda value: base64.b64encode(value).decode(), base64.b64decode
    ),
    "datetime": _Kind(datetime.datetime, "value", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": _Kind(datetime.date, "value", datetime.date.isoformat, datetime.date.fromisoformat),
    "decimal": _Kind(decimal.Decimal, "value", str, decimal.Decimal),
}


def encode(value: Any) -> str:
    """Return a value as JSON text in valid Unicode."""
    text = json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # In ASCII output a lone surrogate is escaped like any other character.
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def decode(text: str) -> Any:
    """Return the value that `encode` was given.

    Arrays of other libraries come back as NumPy arrays, subclasses of built-in types as the built-in types, and values
    that could not be stored as `Opaque`.

    Raises:
        ValueError: The text was not written by `encode`.
    """
    try:
        return json.loads(text, object_hook=_from_object)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"{text[:200]!r} is not a stored value: {type(error).__name__}: {error}") from error


def to_json(value: Any) -> Any:
    """Return a value in JSON's types, with objects that have the key `$type` for what JSON cannot represent."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if value.bit_length() <= _LARGEST_INT_BITS else {_TAG: "int", "hex": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {_TAG: "float", "value": repr(value)}
    try:
        return _other_to_json(value)
    except Exception:  # a user's object may raise anything when it is inspected
        return _describe(value)


def _other_to_json(value: Any) -> Any:
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        if all(type(name) is str for name in value) and _TAG not in value:
            return {name: to_json(item) for name, item in value.items()}
        return {_TAG: "mapping", "items": [[to_json(name), to_json(item)] for name, item in value.items()]}
    for name, kind in _KINDS.items():
        if isinstance(value, kind.type):
            return {_TAG: name, kind.key: to_json(kind.write(value))}
    if isinstance(value, np.generic):
        return {_TAG: "scalar", "dtype": _stored_type(value), "value": to_json(value.item())}
    if isinstance(value, str):  # a subclass, such as StrEnum
        return str.__str__(value)
    if isinstance(value, int | float):
        return to_json(int.__int__(value) if isinstance(value, int) else float.__float__(value))
    if isinstance(value, _Response):
        return {_TAG: "response"}
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        values = to_json(array.reshape(-1).tolist())
        return {_TAG: "array", "dtype": _stored_type(array), "shape": list(array.shape), "values": values}
    return _describe(value)


def _stored_type(array: "np.ndarray[Any, Any] | np.generic") -> str:
    """Return the name of an array's type; raise TypeError if lists do not represent its values without loss."""
    if array.dtype.kind not in "biufU" or (array.dtype.itemsize > 8 and array.dtype.kind == "f"):
        raise TypeError(array.dtype)
    return array.dtype.str


def _describe(value: Any) -> dict[str, str]:
    kind = type(value)
    try:
        text = repr(value)[:_LONGEST_TEXT]
    except Exception as error:
        text = f"its repr raised {type(error).__name__}"
    return {_TAG: "opaque", "class": f"{kind.__module__}.{kind.__qualname__}", "text": text}


def _from_object(stored: dict[str, Any]) -> Any:
    """Return the value that a JSON object represents; objects inside it are converted already."""
    match stored.get(_TAG):
        case None:
            return stored
        case "float":
            return float(stored["value"])
        case "int":
            return int(stored["hex"], 16)
        case "mapping":
            return dict(stored["items"])
        case "scalar":
            return np.array([stored["value"]], stored["dtype"])[0]
        case "array":
            return np.array(stored["values"], stored["dtype"]).reshape(stored["shape"])
        case "response":
            return RESPONSE
        case "opaque":
            return Opaque(stored["class"], stored["text"])
        case name:
            kind = _KINDS[name]
            return kind.read(stored[kind.key])
