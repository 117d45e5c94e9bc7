"""Overrides: `KEY=VALUE` in the grammar of Hydra.

https://hydra.cc/docs/advanced/override_grammar/basic/
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

# Text that the grammar reads as one word. A number or a literal such as null would not be read as text.
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_LITERALS = {"null", "none", "true", "false", "nan", "inf"}


def assign(key: str, value: Any) -> str:
    """Return an override, such as `grpo.beta=0.1`."""
    return f"{key}={write(value)}"


def write(value: Any) -> str:
    """Return a value in the grammar of overrides; raise TypeError for a value that is not plain data."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _LITERALS:
            return value
        # Backslashes are literal, except before a quote and at the end.
        text = re.sub(r'(?<!\\)(\\*+)("|$)', lambda found: found[1] * 2 + (r"\"" if found[2] else ""), value)
        return f'"{text}"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_write_key(key)}: {write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(write(item) for item in value) + "]"
    raise TypeError(f"an override cannot contain {value!r}")


def _write_key(key: object) -> str:
    """Return a key with the special characters of the grammar escaped."""
    return key if isinstance(key, str) and _PLAIN.fullmatch(key) else re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", str(key))
