"""Advice as overrides, to add to the configuration of the run."""

import math
from collections.abc import Mapping
from typing import Any

from agent_tunix.overrides import assign
from agent_tunix.rewards.builtin import Kind
from agent_tunix.workbench.diagnosis.context import RunContext


def change_component(context: RunContext, name: str, **changes: Any) -> str:
    """Return the override that changes keys of a component, such as `weight=0.1` or `transform=["rank"]`."""
    return _write_components(context, {name: {**context.component(name).written, **changes}})


def add_component(context: RunContext, name: str, **keys: Any) -> str:
    """Return the override that adds a component under a name, or under a similar one if that is taken."""
    names = {component.name for component in context.components}
    number = 2
    free = name
    while free in names:
        free, number = f"{name}_{number}", number + 1
    return _write_components(context, {free: keys})


def pay_for_answer(context: RunContext) -> tuple[str, ...]:
    """Return the override that adds the measure of correctness of the run's evaluations to the reward.

    It is empty if the reward has a component of correctness, or the run's own reward is the measure.
    """
    measure = context.settings.get("evaluation.correct", "math")
    if measure == "reward" or any(component.is_correctness for component in context.training):
        return ()
    return (add_component(context, "correct", function=measure, weight=1.0),)


def pay_for_form(context: RunContext) -> tuple[str, ...]:
    """Return the override that adds a reward of the form; empty if the reward has one."""
    if any(component.kind == Kind.FORM for component in context.training):
        return ()
    return (add_component(context, "tags", function="format", weight=0.2),)


def scale_advantages(context: RunContext, scaling: str) -> tuple[str, ...]:
    """Return the override of `grpo.advantage_scaling`; empty if the run has that value."""
    key = "grpo.advantage_scaling"
    return () if context.settings.get(key) == scaling else (assign(key, scaling),)


SLOWER = 10.0
"""Divisor by which advice lowers a learning rate; the effect of a smaller one is hard to see."""
FASTEST = 1e-3
"""Highest learning rate that advice gives: one that wrecked the policy may be too high by orders of magnitude."""


def slower(context: RunContext) -> str:
    """Return the override that lowers the learning rate."""
    rate = context.number("optimizer.learning_rate", 1e-4)
    return assign("optimizer.learning_rate", round_figure(min(rate / SLOWER, FASTEST)))


def _write_components(context: RunContext, changes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the override of the changed components; of all of them if the override replaces the whole mapping."""
    if context.reward_key == "reward.components":
        ((name, settings),) = changes.items()
        return assign(f"{context.reward_key}.{name}", settings)
    whole = {component.name: component.written for component in context.components}
    # `++` also works if the command line made the value a mapping, which takes no new keys otherwise.
    return assign(f"++{context.reward_key}", {**whole, **changes})


def round_figure(value: float, digits: int = 2) -> float:
    """Return a number rounded to significant digits, for readable advice."""
    return 0.0 if value == 0 else round(value, digits - 1 - math.floor(math.log10(abs(value))))
