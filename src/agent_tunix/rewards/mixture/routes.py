"""Routes: dataset columns that select the rows to which a component applies.

    sums:   {function: math, when: {kind: math}}
    proofs: {function: my_proofs, when: {kind: [proof, lemma]}}
    poems:  {function: my_poems, when: kind}             short for `when: {kind: poems}`

A component does not apply to a row whose column has another value or is missing. Then it is not computed, and does not
affect the comparison within the group. With several columns, all must match. If a column holds a list, one of its
entries must match.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError

_PLAIN = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Route:
    """The rows to which a component applies."""

    wanted: Mapping[str, tuple[Any, ...]]  # column → accepted values; empty for every row

    def obstacle(self, columns: Mapping[str, Any]) -> str | None:
        """Return the reason why the component does not apply to a row, or None if it applies."""
        for column, values in self.wanted.items():
            cell = columns.get(column)
            entries = cell if isinstance(cell, Sequence) and not isinstance(cell, str) else [cell]
            if not any(_is_same(entry, value) for entry in entries for value in values):
                return f"it applies to rows with {column} = {' or '.join(map(str, values))}, but this one has {cell!r}"
        return None

    def excludes(self, fixed: Mapping[str, Any]) -> bool:
        """Return True if the component applies to no row, given columns that have one value in all rows."""
        wanted_values = {column: values for column, values in self.wanted.items() if column in fixed}
        return Route(wanted_values).obstacle(fixed) is not None

    def to_data(self) -> dict[str, list[Any]]:
        """Return the route as the configuration writes it."""
        return {column: list(values) for column, values in self.wanted.items()}


ALL_ROWS = Route({})


def _is_same(value: object, accepted: object) -> bool:
    """Compare values, also as text: a file may hold "3" or "true" where the configuration has 3 or true."""
    if isinstance(value, str) == isinstance(accepted, str):
        return value == accepted
    text, other = (str(value), accepted) if isinstance(value, str) else (str(accepted), value)
    if isinstance(other, bool):
        return text.strip().lower() == str(other).lower()
    with contextlib.suppress(ValueError):
        if float(text) == other:
            return True
    return text == str(other)


def read_route(component: str, entry: object) -> Route:
    """Read a component's `when`: None, a column, or a mapping of columns to values or lists; else raise RewardError."""
    if entry is None:
        return ALL_ROWS
    if isinstance(entry, str):
        return Route({entry: (component,)})
    if isinstance(entry, Mapping) and entry:
        values_of_column = {
            str(column): tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
            for column, value in entry.items()
        }
        if all(values and all(isinstance(value, _PLAIN) for value in values) for values in values_of_column.values()):
            return Route(values_of_column)
    raise RewardError(
        f"`when` of component {component!r} must map a column to its value, for example {{kind: math}}, not {entry!r}",
        code="invalid_mixture",
    )
