"""Tables of which the default tier tests some rows and the slow tier the rest."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def in_tiers(rows: Mapping[str, Any] | Iterable[Any], *default: Any) -> list[Any]:
    """Return the rows of a table as parameters, all but those named slow.

    Args:
        rows: Values, or values by name; a tuple holds those of several parameters.
        default: Rows of the default tier: names of a mapping, values of another table.
    """
    named = rows.items() if isinstance(rows, Mapping) else ((None, row) for row in rows)
    found = [(name, row, (row if name is None else name) in default) for name, row in named]
    assert sum(is_default for _, _, is_default in found) == len(default), f"no such rows: {default}"
    return [_make(row, name, is_default) for name, row, is_default in found]


def slow_after(count: int, rows: Iterable[Any]) -> list[Any]:
    """Return the rows of a table as parameters, those after the first `count` slow."""
    return [_make(row, None, place < count) for place, row in enumerate(rows)]


def _make(row: Any, name: str | None, is_default: bool) -> Any:
    values = row if isinstance(row, tuple) else (row,)
    return pytest.param(*values, id=name, marks=[] if is_default else [pytest.mark.slow])
