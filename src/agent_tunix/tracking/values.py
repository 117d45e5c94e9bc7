"""Metric values as plain Python, which every tracker accepts."""

import math
from collections.abc import Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """Convert a metric to a value that JSON can hold.

    Arrays and scalars of NumPy, JAX and similar libraries become lists and numbers. Non-finite floats become None.
    Mappings, lists and tuples are converted recursively.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def is_histogram(value: Any) -> bool:
    """Return True if a plain value is a histogram: `{"counts": [n], "edges": [n + 1]}`, all of them numbers."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"counts", "edges"}
        and len(value["edges"]) == len(value["counts"]) + 1 > 1
        and None not in value["edges"]
    )


def is_number(value: Any) -> bool:
    """Return True if a plain value is a number, or a bool, which counts as 0 or 1."""
    return isinstance(value, int | float)


def is_metric(value: Any) -> bool:
    """Return True if a JSON value is a finite number or a histogram of finite numbers, as `to_plain` makes them."""
    if is_number(value):
        return math.isfinite(value)
    if not isinstance(value, dict) or not all(isinstance(part, list) for part in value.values()):
        return False
    return is_histogram(value) and all(is_number(one) and math.isfinite(one) for part in value.values() for one in part)
