"""Comparison of two rewards: code, arguments, mixture and versions."""

import difflib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_tunix.rewards.fingerprint import changes, fingerprint
from agent_tunix.rewards.kinds import function_of
from agent_tunix.rewards.loading import shown_name
from agent_tunix.rewards.mixture import Component, Mixture


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between two rewards."""

    changes: tuple[str, ...]  # one line per difference: components, functions, arguments, weights, gates, versions
    code: dict[str, str]  # component → unified diff of its function's sources, if both have one and they differ
    hashes: tuple[str, str]  # the two fingerprints

    def __bool__(self) -> bool:
        return bool(self.changes or self.code)

    def to_data(self) -> dict[str, Any]:
        """Return the differences ready for JSON."""
        return {"changes": list(self.changes), "code": self.code, "fingerprints": list(self.hashes)}

    def lines(self) -> Iterator[str]:
        """Yield lines for a person."""
        if not self:
            yield f"the two are the same reward (fingerprint {self.hashes[0]})"
            return
        yield f"fingerprint {self.hashes[0]} → {self.hashes[1]}"
        yield from self.changes
        for diff in self.code.values():
            yield ""
            yield from diff.splitlines()


def compare_rewards(first: Mixture, second: Mixture) -> Difference:
    """Return the differences between two rewards.

    Components are paired by name. If each reward has only one, the two are a pair whatever their names.
    """
    before, after = fingerprint(first), fingerprint(second)
    pairs = list(_pairs(first, second))
    code = {}
    for old, new in pairs:
        diff = _source_diff(old, new)
        if diff:
            code[new.name] = diff
    return Difference(tuple(changes(before.to_data(), after.to_data())), code, (before.short, after.short))


def _pairs(first: Mixture, second: Mixture) -> Iterator[tuple[Component, Component]]:
    if len(first.components) == len(second.components) == 1:
        yield first.components[0], second.components[0]
        return
    by_name = {component.name: component for component in first.components}
    for component in second.components:
        if component.name in by_name:
            yield by_name[component.name], component


def _source_diff(old: Component, new: Component) -> str:
    before, after = _source(old), _source(new)
    if before is None or after is None or before == after:
        return ""
    names = (f"{old.name}: {_place(old)}", f"{new.name}: {_place(new)}")
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))


def _definition(component: Component) -> Any:
    function = function_of(component.reward)
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def _source(component: Component) -> str | None:
    try:
        return inspect.getsource(_definition(component))
    except (OSError, TypeError):
        return None


def _place(component: Component) -> str:
    definition = _definition(component)
    module = shown_name(str(getattr(definition, "__module__", "")))
    return f"{module}.{getattr(definition, '__qualname__', component.name)}"
