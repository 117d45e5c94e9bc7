"""Detection of mixtures whose components fail: one drowns the others, a gate stays shut, a schedule ends too soon."""

from collections.abc import Iterator

from agent_tunix.workbench.diagnosis.context import ComponentContext, RunContext
from agent_tunix.workbench.diagnosis.detecting import (
    Detection,
    Detector,
    Row,
    Window,
    count_completions,
    number,
    settled_mean,
    span_of,
)
from agent_tunix.workbench.diagnosis.edits import change_component, round_figure, scale_advantages
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import highest_in

DOMINANCE_STEPS = 3
"""Steps over which shares of the advantage are averaged."""
DOMINANT_SHARE = 0.9
"""Share of the within-group variance of the total that the dominant component explains."""
DROWNED_SHARE = 0.05
"""Largest share of a drowned component, which varies within groups and so could teach."""
DROWNED_WEIGHT = 0.2
"""Least share of the drowned component in the sum of weights; a small weight is meant to have little effect."""
SCALE_RATIO = 4.0
"""Least ratio of weight × std of the dominant component to that of the drowned one. A rare success explains little
variance because it is rare, not because of its scale.
"""


class Dominance(Detector):
    """Detector of a component whose scale decides nearly all of the advantage, so that others decide nothing."""

    names = ("component_dominance",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._shares = {component.name: Window(DOMINANCE_STEPS) for component in context.training}
        self._reaches = {component.name: Window(DOMINANCE_STEPS) for component in context.training}

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        if len(self._shares) < 2:
            return
        weights = {name: abs(number(row, f"rewards/{name}/weight") or 0.0) for name in self._shares}
        for name in self._shares:
            self._shares[name].add(number(row, f"rewards/{name}/advantage_share"))
            self._reaches[name].add(self._reach(name, weights[name], row))
        names = [name for name, window in self._shares.items() if window.is_full and self._reaches[name].is_full]
        if len(names) < 2:
            return
        dominant = max(names, key=lambda name: self._shares[name].mean)
        share, reach = self._shares[dominant].mean, self._reaches[dominant].mean
        total_weight = sum(weights.values())
        drowned = [
            name
            for name in names
            if name != dominant
            and self._shares[name].mean <= DROWNED_SHARE
            and self._reaches[name].low > 0
            and reach >= SCALE_RATIO * self._reaches[name].mean
            and weights[name] >= DROWNED_WEIGHT * total_weight
        ]
        # A component of correctness may decide alone.
        if share >= DOMINANT_SHARE and drowned and not self.context.component(dominant).is_correctness:
            yield self._detection(dominant, drowned, weights)

    def _reach(self, name: str, weight: float, row: Row) -> float | None:
        """Return the effect of a component on totals: its weight times the std of its values."""
        leaf = "transformed/std" if self.context.component(name).transforms else "std"
        std = number(row, f"rewards/{name}/{leaf}")
        return None if std is None else weight * std

    def _detection(self, dominant: str, drowned: list[str], weights: dict[str, float]) -> Detection:
        share = self._shares[dominant].mean
        reach = max(self._reaches[name].mean for name in drowned)
        component = self.context.component(dominant)
        # The advice does not replace a weight that follows a schedule or a metric.
        written_weight = component.written.get("weight", component.weight)
        lower: tuple[str, ...] = ()
        if isinstance(written_weight, int | float):
            weight = round_figure(component.weight * reach / self._reaches[dominant].mean)
            lower = (change_component(self.context, dominant, weight=weight),)
        return Detection(
            "component_dominance",
            Severity.WARNING,
            share,
            f"{dominant} explains {share:.0%} of the variance of the advantages, and {', '.join(drowned)} almost "
            "none, because their scales differ; lower its weight, or standardise each component separately",
            subject=dominant,
            evidence={
                f"rewards/{name}/{leaf}": value
                for name in (dominant, *drowned)
                for leaf, value in (
                    ("advantage_share", self._shares[name].mean),
                    ("weight", weights[name]),
                    ("weight × std", self._reaches[name].mean),
                )
            },
            edits=(*scale_advantages(self.context, "component"), *lower),
            pick=highest_in(dominant),
        )


GATE_STEPS = 5
"""Steps in which no completion passed."""
GATE_COMPLETIONS = 192
"""Completions of which none passed: a gate that one in sixty passes stays shut for 192 in 4 % of the cases."""


class Gates(Detector):
    """Detector of a gate that no completion has passed since the start of the run."""

    names = ("gate_never_opens",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._steps: dict[str, int] = {c.name: 0 for c in context.training if c.requires}
        self._completions = 0
        self._best: dict[str, float] = {}

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        num = count_completions(row)
        if num == 0:
            return
        self._completions += num
        for component in self.context.components:
            if (high := number(row, f"rewards/{component.name}/max")) is not None:
                self._best[component.name] = max(high, self._best.get(component.name, high))
        for name in list(self._steps):
            shut = number(row, f"rewards/{name}/gate_shut")
            if shut is None or shut < num:
                del self._steps[name]  # the gate opened, or not every completion reached it
                continue
            self._steps[name] += 1
            component = self.context.component(name)
            impossible = self._impossible(component)
            if impossible or (self._steps[name] >= GATE_STEPS and self._completions >= GATE_COMPLETIONS):
                yield self._detection(component, impossible)

    def _impossible(self, component: ComponentContext) -> bool:
        """Return True if a requirement is above the declared range of its component."""
        ranges = {name: self.context.component(name).range for name in component.requires}
        return any(span is not None and component.requires[name] > span[1] for name, span in ranges.items())

    def _detection(self, component: ComponentContext, impossible: bool) -> Detection:
        requirements = " and ".join(f"{name} ≥ {least:g}" for name, least in component.requires.items())
        best = {name: self._best[name] for name in component.requires if name in self._best}
        reachable = {name: min(least, best.get(name, least)) for name, least in component.requires.items()}
        if reachable == dict(component.requires):  # each is met by some completion, but no completion meets all
            reachable = dict(list(reachable.items())[:1]) if len(reachable) > 1 else {}
        why = "no value can pass it" if impossible else f"none of {self._completions} completions passed it"
        return Detection(
            "gate_never_opens",
            Severity.ERROR if impossible else Severity.WARNING,
            2.0 if impossible else 1.0,
            f"the gate of {component.name} requires {requirements}, but {why}, so the component never trains; lower "
            "the requirement",
            subject=component.name,
            evidence={f"rewards/{name}/max": value for name, value in best.items()}
            | {f"required/{name}": least for name, least in component.requires.items()}
            | {f"rewards/{component.name}/gate_shut": 1.0},
            edits=(change_component(self.context, component.name, requires=reachable or None),),
            pick=highest_in(next(iter(component.requires))),
        )


SCHEDULE_LEARNED = 0.1
"""Share of the total's range that the total must have gained for learning to have started."""
SCHEDULE_START = 3
"""Steps that make the start, and the recent past."""


class Schedules(Detector):
    """Detector of a weight schedule that ends before the policy has learned anything."""

    names = ("schedule_over_too_soon",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._waiting = {c.name for c in context.training if c.schedule is not None}
        self._totals = Window(SCHEDULE_START)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        if "rewards/total/mean" not in row:
            return  # an evaluation or a supervised start, which no reward trains
        self._totals.add(settled_mean(self.context, row))
        for name in sorted(self._waiting):
            component = self.context.component(name)
            assert component.schedule is not None
            first, last = component.schedule
            why = ""
            if step > 0 and last <= self.context.warmup_steps:
                why = "before the learning rate has risen to its peak"
            elif first < last <= step and not self._has_learned(row):
                why = "before the total has risen"
            if why or last <= step:
                self._waiting.discard(name)  # reported once; later learning does not undo it
            if why and self._longer()[1] > last:
                yield self._detection(component, why, row)

    def _longer(self) -> tuple[int, int]:
        """Return first and last step of a schedule that leaves the policy time to learn."""
        start = max(self.context.warmup_steps, round(0.25 * self.context.num_steps))
        return start, max(start + 1, round(0.75 * self.context.num_steps))

    def _has_learned(self, row: Row) -> bool:
        if not self._totals.is_full:
            return False
        return self._totals.rise >= SCHEDULE_LEARNED * span_of(self.context, row)

    def _detection(self, component: ComponentContext, why: str, row: Row) -> Detection:
        assert component.schedule is not None
        first, last = component.schedule
        start, end = self._longer()
        written_weight = component.written.get("weight")
        weight = dict(written_weight) if isinstance(written_weight, dict) else {}
        weight |= {"steps": end if first == last else [start, end]}
        return Detection(
            "schedule_over_too_soon",
            Severity.WARNING,
            1.0,
            f"the weight of {component.name} goes from {component.start_weight:g} to {component.weight:g} by step"
            f" {last:g}, {why}; stretch the schedule",
            subject=component.name,
            evidence={
                "schedule_end": last,
                "warmup_steps": float(self.context.warmup_steps),
                "rewards/total/mean": number(row, "rewards/total/mean") or 0.0,
            },
            edits=(change_component(self.context, component.name, weight=weight),),
        )
