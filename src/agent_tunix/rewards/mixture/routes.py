"""Routes: a column of the dataset says to which rows a component applies.

    sums:   {function: math, when: {kind: math}}
    proofs: {function: my_proofs, when: {kind: [proof, lemma]}}
    poems:  {function: my_poems, when: kind}             short for `when: {kind: poems}`

To a row whose column holds another value, or which lacks the column, the component does not apply: it is not computed,
and contributes nothing that could tell the completions of a group apart. Several columns must all agree. A column may
hold a list: one of its entries must be wanted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError

_PLAIN = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Route:
    """To which rows a component applies.

    Attributes:
        wanted: Column → the values of which it must hold one; empty: every row.
    """

    wanted: Mapping[str, tuple[Any, ...]]

    def obstacle(self, columns: Mapping[str, Any]) -> str | None:
        """Why the component does not apply to a row, or None where it does."""
        for column, values in self.wanted.items():
            found = columns.get(column)
            entries = found if isinstance(found, Sequence) and not isinstance(found, str) else [found]
            if not any(_is_same(entry, value) for entry in entries for value in values):
                return f"its rows have {column} = {' or '.join(map(str, values))}, and this one {found!r}"
        return None

    def excludes(self, fixed: Mapping[str, Any]) -> bool:
        """Whether the component applies to no row, where these columns hold the same in every one."""
        known = {column: values for column, values in self.wanted.items() if column in fixed}
        return Route(known).obstacle(fixed) is not None

    def to_data(self) -> dict[str, list[Any]]:
        """What the configuration would say."""
        return {column: list(values) for column, values in self.wanted.items()}


ALL_ROWS = Route({})


def _is_same(found: object, wanted: object) -> bool:
    """Equal, or written alike: a file may hold "3" where the configuration has 3."""
    return found == wanted or (isinstance(found, str) != isinstance(wanted, str) and str(found) == str(wanted))


def read_route(component: str, written: object) -> Route:
    """The route that a component's `when` means.

    Args:
        component: Its name, for messages.
        written: None, a column's name, or a mapping from columns to values or lists of values.

    Raises:
        RewardError: No route is written so.
    """
    if written is None:
        return ALL_ROWS
    if isinstance(written, str):
        return Route({written: (component,)})
    if isinstance(written, Mapping) and written:
        wanted = {
            str(column): tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
            for column, value in written.items()
        }
        if all(values and all(isinstance(value, _PLAIN) for value in values) for values in wanted.values()):
            return Route(wanted)
    raise RewardError(
        f"`when` of component {component!r} must name a column and the value it holds, as in {{kind: math}}, "
        f"not {written!r}",
        code="invalid_route",
    )
