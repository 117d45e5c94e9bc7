"""Kind and range that a reward declares. The kind decides which checks apply to the reward.

    @register_reward_function("is_polite")
    def is_polite(response):
        ...

    is_polite.kind = "quality"
    is_polite.range = (0.0, 1.0)

In a mixture, `kind:` of a component does the same. Without these attributes the range is read from a docstring that
contains `Range [0, 1]`, and the kind is unknown. A reward of several weighted components is a composite if one of them
grades the answer. Its range follows from theirs.
"""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.builtin import BUILTINS, Builtin, Kind
from agent_tunix.rewards.mixture import Component, Mixture
from agent_tunix.rewards.mixture.schedules import Schedule

Range = tuple[float, float]

_NUMBER = r"([-−+]?\d+(?:\.\d+)?)"
_RANGE = re.compile(rf"\bRange:? *[\[({{]{_NUMBER}, *(?:[^\])}}]*, *)?{_NUMBER}[\])}}]")


def kind_of(mixture: Mixture) -> Kind | None:
    """Return the kind of a reward from the kinds that its components declare; None if it is unknown.

    Raises:
        RewardError: A component declares a kind that does not exist.
    """
    kinds = {component_kind(component) for component in weighted(mixture)}
    if len(kinds) == 1:
        return kinds.pop()
    return Kind.COMPOSITE if any(needs_answer(kind) for kind in kinds) else None


def needs_answer(kind: Kind | None) -> bool:
    """Return True if only the correct answer may earn the maximum."""
    return kind in (Kind.CORRECTNESS, Kind.COMPOSITE)


def show_kind(kind: Kind | None) -> str:
    """Return the name of a kind, or `unknown`."""
    return "unknown" if kind is None else kind.value


def component_kind(component: Component) -> Kind | None:
    """Return the kind of a component: its own `kind:`, or else the kind that its reward declares."""
    return component.kind or declared_kind(component.reward)


def declared_kind(reward: Any) -> Kind | None:
    """Return the kind (correctness, form, …) that a reward, not a mixture, declares."""
    function = function_of(reward)
    for holder in (reward, function):
        declared = getattr(holder, "kind", None)
        if isinstance(declared, str):
            return read_kind(reward.name, declared)
    builtin = _builtin(function)
    return builtin.kind if builtin else None


def read_kind(name: str, declared: object) -> Kind | None:
    """Return the kind that a reward or component declares; None if it declares none.

    Raises:
        RewardError: There is no such kind.
    """
    if declared is None:
        return None
    try:
        return Kind(str(declared))
    except ValueError:
        raise RewardError(f"the reward {name!r} declares the kind {declared!r}; there are {', '.join(Kind)}") from None


def range_of(mixture: Mixture, step: int = 0) -> Range | None:
    """Return the range of a reward's total at a step; None if a component declares none or transforms its value."""
    return total_range(mixture, declared_ranges(mixture), mixture.weights(step))


def range_in_run(mixture: Mixture) -> Range | None:
    """Return the range of a reward's total over all steps, as `range_of`."""
    schedules = [c.weight for c in mixture.components if isinstance(c.weight, Schedule)]
    steps = {0, *(int(bound) for schedule in schedules for bound in schedule.bounds)}
    declared = declared_ranges(mixture)
    spans = [total_range(mixture, declared, mixture.weights(step)) for step in steps]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def declared_ranges(mixture: Mixture) -> dict[str, Range | None]:
    """Return the range of each component's raw values, None if none is declared."""
    return {component.name: declared_range(component.reward) for component in mixture.components}


def total_range(mixture: Mixture, declared: Mapping[str, Range | None], weights: Mapping[str, float]) -> Range | None:
    """Return the range of a reward's total from `declared_ranges` and the effective weights; None if it is unknown."""
    low, high = 0.0, 0.0
    for component in weighted(mixture):
        span = _contribution(component, declared[component.name], weights[component.name])
        if span is None:
            return None
        low, high = low + span[0], high + span[1]
    return low, high


def _contribution(component: Component, declared: Range | None, weight: float) -> Range | None:
    """Return the range of what a component adds to the total; None if it is unknown."""
    if weight == 0:
        return 0.0, 0.0
    if declared is None or component.transforms:
        return None
    ends = [weight * end for end in declared]
    if component.requires or component.route.wanted:
        ends.append(0.0)  # contribution behind a shut gate, or on a row to which the component does not apply
    return min(ends), max(ends)


def declared_range(reward: Any) -> Range | None:
    """Return the range that a single reward declares, by an attribute or in its docstring."""
    function = function_of(reward)
    for holder in (reward, function):
        declared = getattr(holder, "range", None)
        if isinstance(declared, Sequence) and not isinstance(declared, str) and len(declared) == 2:
            return float(declared[0]), float(declared[1])
    if builtin := _builtin(function):
        return builtin.low, builtin.high
    match = _RANGE.search(inspect.getdoc(function) or "")
    return (_number(match[1]), _number(match[2])) if match else None


def format_range(declared: Range | None) -> str:
    """Return `0 to 1`, or `not declared`."""
    if declared is None:
        return "not declared"
    return " to ".join(f"{end:g}" if math.isfinite(end) else str(end) for end in declared)


def summary_of(reward: Any) -> str:
    """Return the first sentence of a reward's docstring, without its range."""
    doc = inspect.getdoc(function_of(reward)) or ""
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return _RANGE.sub("", paragraph).replace(" .", ".").partition(" for four tags")[0].strip(" .")


def function_of(reward: Any) -> Any:
    """Return the function, class or object that the user wrote."""
    definition = getattr(reward, "definition", None) or getattr(reward, "function", reward)
    return inspect.unwrap(definition) if callable(definition) else definition


def _builtin(function: Any) -> Builtin | None:
    """Return the entry of a built-in in `BUILTINS`, by its function."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    builtin = BUILTINS.get(name.removesuffix("_reward"))
    return builtin if builtin and module == f"agent_tunix.rewards.builtin.{builtin.family}" else None


def weighted(mixture: Mixture) -> list[Component]:
    """Return the components whose weight is not 0."""
    return [component for component in mixture.components if component.weight]


def _number(text: str) -> float:
    return float(text.replace("−", "-"))
