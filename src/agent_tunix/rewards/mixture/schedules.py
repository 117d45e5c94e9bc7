"""Weights that change during a run.

    weight: 0.2                                                        constant
    weight: {from: 0.0, to: -0.5, steps: [100, 300]}                   over training steps

Let x rise from 0 at the first step to 1 at the second, clipped to this range. The weight is

    linear    from + (to − from) · x
    cosine    from + (to − from) · (1 − cos πx) / 2
    step      `from` below the one step, `to` from it on: `steps: 100`
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.transforms import is_number

KINDS = ("linear", "cosine", "step")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A weight that moves between two values."""

    start: float  # weight up to the first bound (`from`)
    end: float  # weight from the second bound on (`to`)
    bounds: tuple[float, float]  # two training steps (`steps`); the kind `step` stores its one step twice
    kind: str = "linear"  # linear, cosine or step

    def at(self, step: int) -> float:
        """Return the weight at a training step."""
        low, high = self.bounds
        if self.kind == "step":
            return self.end if step >= low else self.start
        x = (step - low) / (high - low)
        if x <= 0:
            return self.start
        if x >= 1:
            return self.end
        share = x if self.kind == "linear" else (1 - math.cos(math.pi * x)) / 2
        return self.start + (self.end - self.start) * share

    def to_data(self) -> dict[str, Any]:
        """Return the schedule as the configuration writes it."""
        return {"from": self.start, "to": self.end, "steps": list(self.bounds), "kind": self.kind}

    def describe(self) -> str:
        """Describe the schedule: `(0 → -0.5 over steps 100 to 300, linear)`."""
        places = f"{self.bounds[0]:g}" if self.kind == "step" else f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return f"({self.start:g} → {self.end:g} over steps {places}, {self.kind})"


Weight = float | Schedule


def weight_at(weight: Weight, step: int) -> float:
    """Return the effective weight at a step."""
    return weight.at(step) if isinstance(weight, Schedule) else float(weight)


def may_train(weight: Weight) -> bool:
    """Return True if the weight is not 0 at some step."""
    return bool(weight.start or weight.end) if isinstance(weight, Schedule) else weight != 0


def read_weight(component: str, value: object) -> Weight:
    """Read a component's `weight`: a number, or a mapping as in the module's docstring; else raise RewardError."""
    if isinstance(value, Mapping):
        return _read_schedule(component, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = (
            ("; YAML reads an exponent only after a decimal point, for example 1.0e-3")
            if isinstance(value, str)
            else ""
        )
        raise RewardError(
            f"the weight of component {component!r} must be a number or a schedule, not {value!r}{hint}",
            code="invalid_mixture",
        )
    if not math.isfinite(value):
        raise RewardError(f"the weight of component {component!r} must be finite, not {value}", code="invalid_mixture")
    return float(value)


def _read_schedule(component: str, settings: Mapping[Any, Any]) -> Schedule:
    def refuse(reason: str) -> RewardError:
        return RewardError(
            f"the weight of component {component!r}: {reason}; write {{from: 0.0, to: 1.0, steps: [100, 300]}}",
            code="invalid_mixture",
        )

    unknown = [key for key in settings if key not in ("from", "to", "steps", "kind")]
    if unknown:
        raise refuse(f"a schedule has no key {unknown[0]!r}")
    for key in ("from", "to"):
        if not is_number(settings.get(key)):
            raise refuse(f"{key} must be a finite number, not {settings.get(key)!r}")
    kind = settings.get("kind", "linear")
    if kind not in KINDS:
        raise refuse(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    steps = settings.get("steps")
    bounds: Sequence[Any] = steps if isinstance(steps, Sequence) and not isinstance(steps, str) else [steps]
    if not bounds or not all(map(is_number, bounds)):
        raise refuse(f"steps must be {'one number' if kind == 'step' else 'two numbers'}, not {steps!r}")
    if kind == "step":
        if len(set(bounds)) != 1:
            raise refuse(f"steps of the kind `step` must be the one number at which the weight changes, not {steps!r}")
    elif len(bounds) != 2 or bounds[0] >= bounds[1]:
        raise refuse(f"steps must be two rising numbers, not {steps!r}")
    return Schedule(float(settings["from"]), float(settings["to"]), (float(bounds[0]), float(bounds[-1])), kind)
