"""Values in use of `optimizer` and `scheduler`, and the checks of both groups.

A key that some kinds read is null until the user sets it. So a value that the chosen kind does not read is refused.
`filled` replaces nulls by the defaults of the kind.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from agent_tunix.config.schema import OPTIMIZERS, SCHEDULES, OptimizerConfig, SchedulerConfig

_Group = TypeVar("_Group", OptimizerConfig, SchedulerConfig)


def filled(group: _Group) -> _Group:
    """Return the configuration with its kind's defaults for nulls. Keys that the kind does not read stay null."""
    defaults: Mapping[str, Any] = _table(group)[group.kind]
    return replace(group, **{name: value for name, value in defaults.items() if getattr(group, name) is None})


@dataclass(frozen=True)
class ParameterGroup:
    """Weights with their own update settings."""

    name: str  # key in `optimizer.groups`; part of the names of metrics
    match: re.Pattern[str]  # pattern found (`re.search`) in the path of each weight
    learning_rate: float
    weight_decay: float
    freeze: bool  # True if the weights do not change


def parameter_groups(config: OptimizerConfig) -> list[ParameterGroup]:
    """Return the groups of a configuration that passed `optimizer_problems`, in their order."""
    return [
        ParameterGroup(
            name,
            re.compile(values["match"]),
            values.get("learning_rate", config.learning_rate * values.get("learning_rate_scale", 1.0)),
            values.get("weight_decay", config.weight_decay),
            values.get("freeze", False),
        )
        for name, values in config.groups.items()
    ]


def optimizer_problems(optimizer: OptimizerConfig, scheduler: SchedulerConfig) -> Iterator[str]:
    """Yield a line for each key that the chosen kind does not read, and for each error in a group."""
    yield from _unread(optimizer, "optimizer")
    yield from _unread(scheduler, "scheduler")
    usual = OptimizerConfig().warmup_ratio
    if optimizer.warmup_steps is not None and optimizer.warmup_ratio != usual:
        yield (
            f"optimizer.warmup_ratio {optimizer.warmup_ratio:g} has no effect with optimizer.warmup_steps "
            f"{optimizer.warmup_steps}; set only one of them (the default warmup_ratio is {usual:g})"
        )
    for name, values in optimizer.groups.items():
        for problem in _group_problems(name, values):
            yield f"optimizer.groups.{name}{problem}"
        if optimizer.learning_rate == 0 and isinstance(values, dict) and "learning_rate" in values:
            yield (
                f"optimizer.groups.{name}.learning_rate requires optimizer.learning_rate above 0, because it follows "
                "the schedule of that key, but it is 0; set it above 0"
            )


def _table(group: OptimizerConfig | SchedulerConfig) -> Mapping[str, Mapping[str, float | bool | str]]:
    return OPTIMIZERS if isinstance(group, OptimizerConfig) else SCHEDULES


def _unread(group: OptimizerConfig | SchedulerConfig, prefix: str) -> Iterator[str]:
    table = _table(group)
    if group.kind not in table:
        return  # reported already, with the choices
    for name in dict.fromkeys(name for values in table.values() for name in values):
        value = getattr(group, name)
        if value is not None and name not in table[group.kind]:
            readers = ", ".join(kind for kind, values in table.items() if name in values)
            yield (
                f"{prefix}.{name} {value} has no effect with {prefix}.kind={group.kind}; it applies to {readers}; "
                f"remove it, or choose another {prefix}"
            )


_GROUP_KEYS: Mapping[str, tuple[type, ...]] = {
    "match": (str,),
    "learning_rate": (int, float),
    "learning_rate_scale": (int, float),
    "weight_decay": (int, float),
    "freeze": (bool,),
}


def _group_problems(name: object, values: Any) -> Iterator[str]:
    """Yield the errors of a group, each written to follow its name."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", str(name)) or name == REST:
        yield (
            f" must have a name of letters, digits, - and _ that starts with a letter and is not {REST}, the name of "
            "the remaining weights"
        )
    if not isinstance(values, dict) or "match" not in values:
        yield f" must be {{match: REGULAR_EXPRESSION, …}}, not {values!r}"
        return
    for key, value in values.items():
        kinds = _GROUP_KEYS.get(key)
        if kinds is None:
            yield f".{key} is not a key; the keys are {', '.join(_GROUP_KEYS)}"
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            yield f".{key} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}"
        elif isinstance(value, float | int) and not 0 <= value < math.inf:
            yield f".{key} must be at least 0 and finite, not {value}"
    if isinstance(values["match"], str):
        try:
            re.compile(values["match"])
        except re.error as error:
            yield f".match must be a regular expression, not {values['match']!r:.200}: {error}"
    if "learning_rate" in values and "learning_rate_scale" in values:
        yield " must have learning_rate or learning_rate_scale, but has both; remove one"
    if values.get("freeze") is True and (others := sorted(values.keys() - {"match", "freeze"})):
        yield f" is frozen, so {', '.join(others)} has no effect; remove it"


# Name in metrics for the weights of no group.
REST = "rest"


def summary(optimizer: OptimizerConfig, scheduler: SchedulerConfig) -> str:
    """Return the optimiser and schedule with all values in use, for the log."""

    def describe(group: OptimizerConfig | SchedulerConfig, left_out: tuple[str, ...]) -> str:
        values = dataclasses.asdict(group)
        shown = (f"{name} {value}" for name, value in values.items() if value is not None and name not in left_out)
        return f"{group.kind} ({', '.join(shown)})"

    return f"{describe(filled(optimizer), ('kind', 'groups'))}; {describe(filled(scheduler), ('kind',))}"
