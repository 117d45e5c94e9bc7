"""Rewards that are returned as a dict of named values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_tunix.rewards.conventions.values import describe_kind, to_number, to_score
from agent_tunix.rewards.sample import Outcome, Score


def split_components(returned: Mapping[Any, Any]) -> tuple[dict[str, float | None], dict[str, Any], list[str]]:
    """Return the numbers of a dict, its other entries, and a message about each other entry."""
    components: dict[str, float | None] = {}
    extras: dict[str, Any] = {}
    faults = []
    for key, value in returned.items():
        name = str(key)
        number = None if value is None else to_number(value)
        if isinstance(number, str):
            extras[name] = value
            faults.append(f"component {name!r}: {number}")
        else:
            components[name] = number
    return components, extras, faults


def sum_components(returned: Any, weights: Mapping[str, float]) -> Score:
    """Return the weighted sum of a dict of components as a score that keeps each component.

    The weight of a component is 1 unless `weights` has it. A component that is None does not apply and is left out of
    the sum; if none applies, neither does the reward. A component that is not a finite number makes the completion an
    error that names it.
    """
    if not isinstance(returned, Mapping):
        return Score.failed(Outcome.ERROR, f"returned {describe_kind(returned)}; expected a dict of named components")
    components, _, faults = split_components(returned)
    if faults:
        return Score(None, components, Outcome.ERROR, "; ".join(faults))
    if not components:
        return Score.failed(Outcome.ERROR, "returned an empty dict; expected at least one named component")
    values = {name: value for name, value in components.items() if value is not None}
    if not values:
        return Score(None, components, Outcome.NOT_APPLICABLE, "every component is None")
    total = to_number(sum(weights.get(name, 1.0) * value for name, value in values.items()))
    if isinstance(total, str):
        return Score(None, components, Outcome.ERROR, f"the sum of the components: {total}")
    detail = " + ".join(f"{weights.get(name, 1.0):g} × {name} {value:g}" for name, value in values.items())
    return Score(total, components, Outcome.SCORED, detail)


_DICT = "returned a dict, and "


def lacks_entry(score: Score) -> bool:
    """Return True if `score_of_entry` did not find its key."""
    return score.outcome is Outcome.ERROR and score.detail.startswith(_DICT)


def score_of_entry(returned: Any, key: str | None, expected: str) -> Score:
    """Return the score of a number, or of the entry `key` of a dict.

    The dict's other numbers become components, everything else extras. Errors quote `expected`.
    """
    if not isinstance(returned, Mapping):
        return to_score(returned, expected)
    if key is None or key not in returned:
        choices = ", ".join(map(str, returned)) or "none"
        requirement = (
            "rewards.reward_key does not name the entry that is the reward"
            if key is None
            else f"it has no entry {key!r} (rewards.reward_key)"
        )
        return Score.failed(Outcome.ERROR, f"{_DICT}{requirement}; its entries are {choices}")
    components, extras, _ = split_components(returned)
    return replace(to_score(returned[key], expected), components=components, extras=extras)
