"""Weights that change during a run.

    weight: 0.2                                                        constant
    weight: {from: 0.0, to: -0.5, steps: [100, 300]}                   over training steps
    weight: {metric: eval/accuracy, from: 1.0, to: 0.2, values: [0.3, 0.8]}    over a metric

Let x rise from 0 at the first bound to 1 at the second, clipped to this range. The weight is

    linear    from + (to − from) · x
    cosine    from + (to − from) · (1 − cos πx) / 2
    step      `from` below the bound, `to` from the bound on: `steps: 100`, `values: 0.5`

A metric's value is the last logged number, beginning with the evaluation before training. While there is none, the
weight is `from`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.transforms import is_number

KINDS = ("linear", "cosine", "step")
# Timings differ between equal runs, but a repeated run must give the same result.
_NOT_REPEATABLE = ("time/", "throughput/", "engine/")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A weight that moves between two values."""

    start: float  # weight up to the first bound (`from`)
    end: float  # weight from the second bound on (`to`)
    # Two training steps (`steps`) or values of the metric (`values`). The kind `step` stores its one bound twice.
    bounds: tuple[float, float]
    kind: str = "linear"  # linear, cosine or step
    metric: str | None = None  # the metric that decides; None for the training step

    def at(self, step: int, metrics: Mapping[str, float]) -> float:
        """Return the weight at a training step, given the last logged values of metrics."""
        position = float(step) if self.metric is None else metrics.get(self.metric)
        if position is None:
            return self.start
        low, high = self.bounds
        if self.kind == "step":
            return self.end if position >= low else self.start
        x = (position - low) / (high - low)
        if x <= 0:
            return self.start
        if x >= 1:
            return self.end
        share = x if self.kind == "linear" else (1 - math.cos(math.pi * x)) / 2
        return self.start + (self.end - self.start) * share

    def to_data(self) -> dict[str, Any]:
        """Return the schedule as the configuration writes it."""
        by = "steps" if self.metric is None else "values"
        metric = {} if self.metric is None else {"metric": self.metric}
        return {**metric, "from": self.start, "to": self.end, by: list(self.bounds), "kind": self.kind}

    def describe(self) -> str:
        """Describe the schedule: `(0 → -0.5 over steps 100 to 300, linear)`."""
        of = "steps" if self.metric is None else self.metric
        places = f"{self.bounds[0]:g}" if self.kind == "step" else f"{self.bounds[0]:g} to {self.bounds[1]:g}"
        return f"({self.start:g} → {self.end:g} over {of} {places}, {self.kind})"


Weight = float | Schedule


def weight_at(weight: Weight, step: int, metrics: Mapping[str, float]) -> float:
    """Return the effective weight at a step."""
    return weight.at(step, metrics) if isinstance(weight, Schedule) else float(weight)


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
            f"the weight of component {component!r}: {reason}; write {{from: 0.0, to: 1.0, steps: [100, 300]}}, or "
            "{metric: eval/accuracy, from: 0.0, to: 1.0, values: [0.3, 0.8]}",
            code="invalid_mixture",
        )

    metric = settings.get("metric")
    by = "steps" if metric is None else "values"
    if metric is not None and (not isinstance(metric, str) or "/" not in metric):
        raise refuse(f"metric must be a name such as eval/accuracy, not {metric!r}")
    if metric is not None and metric.startswith(_NOT_REPEATABLE):
        raise refuse(f"{metric} differs between equal runs, which makes a run not reproducible")
    unknown = [key for key in settings if key not in ("metric", "from", "to", by, "kind")]
    if unknown:
        raise refuse(f"a schedule over {'steps' if metric is None else 'a metric'} has no key {unknown[0]!r}")
    for key in ("from", "to"):
        if not is_number(settings.get(key)):
            raise refuse(f"{key} must be a finite number, not {settings.get(key)!r}")
    kind = settings.get("kind", "linear")
    if kind not in KINDS:
        raise refuse(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    bounds = settings.get(by)
    if not isinstance(bounds, Sequence) or isinstance(bounds, str):
        bounds = [bounds]
    if not bounds or not all(map(is_number, bounds)):
        raise refuse(f"{by} must be {'one number' if kind == 'step' else 'two numbers'}, not {settings.get(by)!r}")
    if kind == "step":
        if len(set(bounds)) != 1:
            raise refuse(
                f"for the kind `step`, {by} must be the one number at which the weight changes, not {bounds!r}"
            )
    elif len(bounds) != 2 or bounds[0] == bounds[1] or (metric is None and bounds[0] > bounds[1]):
        raise refuse(
            f"{by} must be two {'rising' if metric is None else 'different'} numbers, not {settings.get(by)!r}"
        )
    return Schedule(float(settings["from"]), float(settings["to"]), (float(bounds[0]), float(bounds[-1])), kind, metric)
