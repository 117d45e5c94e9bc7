"""Advice as overrides: `KEY=VALUE` in the grammar of Hydra, which composes over the configuration of the run.

https://hydra.cc/docs/advanced/override_grammar/basic/
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.workbench.diagnosis.context import RunContext

# What the grammar reads as one word. A number or a literal such as null would not be read as text.
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
_LITERALS = {"null", "none", "true", "false", "nan", "inf"}


def assign(key: str, value: Any) -> str:
    """`grpo.beta=0.1`."""
    return f"{key}={write(value)}"


def write(value: Any) -> str:
    """A value as the grammar reads it back.

    Raises:
        TypeError: It is none of text, number, truth value, None, sequence and mapping.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _LITERALS:
            return value
        # A backslash is itself, unless it stands before a quote or at the end.
        text = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (r"\'" if found[2] else ""), value)
        return f"'{text}'"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_write_key(key)}: {write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(write(item) for item in value) + "]"
    raise TypeError(f"an override cannot hold {value!r}")


def _write_key(key: object) -> str:
    """A key, in which what the grammar would take for its own is escaped."""
    return key if isinstance(key, str) and _PLAIN.fullmatch(key) else re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", str(key))


def change_component(context: RunContext, name: str, **changes: Any) -> str:
    """The override that gives a component other keys, `weight=0.1` or `transform=["rank"]`."""
    return _write_components(context, {name: {**context.component(name).written, **changes}})


def add_component(context: RunContext, name: str, **keys: Any) -> str:
    """The override that adds a component under a name, or one like it that is not taken."""
    taken = {component.name for component in context.components}
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return _write_components(context, {free: keys})


def _write_components(context: RunContext, changed: Mapping[str, Mapping[str, Any]]) -> str:
    """Only what changed where components lie in a group of their own; else all of them, as the value is replaced."""
    if context.reward_key == "reward.components":
        ((name, written),) = changed.items()
        return assign(f"{context.reward_key}.{name}", written)
    whole = {component.name: component.written for component in context.components}
    # `++` also where the command line has made a mapping of it, which else takes no new keys.
    return assign(f"++{context.reward_key}", {**whole, **changed})


def round_figure(value: float, digits: int = 2) -> float:
    """A number that reads well in advice: so many significant digits."""
    return 0.0 if value == 0 else round(value, digits - 1 - math.floor(math.log10(abs(value))))
