"""Ranges and choices of single keys, which annotate the fields of the schema, and the check that reads them."""

import dataclasses
import difflib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args


@dataclass(frozen=True)
class Bounds:
    """Numbers that a key may have. None is no bound; an infinite bound allows finite numbers only."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __contains__(self, value: float) -> bool:
        """Return True if a number is in the range; NaN never is."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        """Return the range in words, such as `above 0 and at most 1`."""
        bounds = {"at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        words = [f"{word} {bound:.10g}" for word, bound in bounds.items() if bound is not None and math.isfinite(bound)]
        return " and ".join([*words, *(["finite"] if self.lt == math.inf else [])])


class OneOf:
    """Texts that a key may have.

    Args:
        choices: The texts.
        own: True if the key also takes a user's function, by its path or registered name. `runs.algorithm_setup`
            refuses unknown names, because only a run that trains requires the function.
    """

    def __init__(self, *choices: str, own: bool = False) -> None:
        self.choices, self.own = choices, own

    def __contains__(self, value: object) -> bool:
        """Return True if a value is one of the choices."""
        return value in self.choices

    def __str__(self) -> str:
        """Return `one of` and the choices."""
        return f"one of {', '.join(self.choices)}"


def limit_of(annotation: Any) -> Bounds | OneOf | None:
    """Return the limit in an annotation such as `Annotated[int, Bounds(ge=1)] | None`; None if it has none."""
    for part in (annotation, *get_args(annotation)):
        for limit in getattr(part, "__metadata__", ()):
            if isinstance(limit, Bounds | OneOf):
                return limit
    return None


def value_problems(group: Any, prefix: str = "", names: Collection[str] | None = None) -> Iterator[str]:
    """Yield a line for each value outside the limit of its key, in a group of keys and the groups within it.

    Args:
        group: Instance of a class of the schema.
        prefix: What precedes the names of the group's keys in messages.
        names: Names of the keys to check; None: all.
    """
    for field in dataclasses.fields(group):
        value, name = getattr(group, field.name), prefix + field.name
        if names is not None and field.name not in names:
            continue
        if dataclasses.is_dataclass(value):
            yield from value_problems(value, f"{name}.")
        limit = limit_of(field.type)
        may_be_null = type(None) in get_args(field.type)
        if limit is None or (may_be_null and value is None) or value in limit:
            continue
        if isinstance(limit, OneOf) and limit.own:
            continue
        hint = f"; {field.metadata['advice']}" if field.metadata["advice"] else ""
        if isinstance(limit, OneOf):
            hint = hint or suggest(str(value), limit.choices)
        yield f"{name} must be {'null or ' if may_be_null else ''}{limit}, not {value!r}{hint}"


def suggest(name: str, known: Sequence[str]) -> str:
    """Return `; did you mean X?` for the nearest known name, or ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
