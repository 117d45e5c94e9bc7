"""Detection of rewards that cannot teach because of their values: constant, sparse, clustered."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent_tunix.overrides import assign
from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.rounding import are_equal, lowest_reaching
from agent_tunix.workbench.diagnosis.context import ComponentContext, RunContext
from agent_tunix.workbench.diagnosis.detecting import (
    Detection,
    Detector,
    Row,
    Window,
    count_completions,
    number,
    span_of,
)
from agent_tunix.workbench.diagnosis.edits import change_component, pay_for_form
from agent_tunix.workbench.diagnosis.findings import ALWAYS, Severity

CONSTANT_STEPS = 3
"""Steps without any difference before a constant is reported: one batch may be all wrong or all right."""
CONSTANT_COMPLETIONS = 96
"""Completions before a constant is reported: if one in thirty earns the reward, 96 contain none in 4 % of the cases."""
UNTAUGHT_COMPLETIONS = 48
"""The same for a component of several, and if every group was dead. That nothing was taught is then certain."""


@dataclass
class _Level:
    """The only value of a series so far."""

    value: float | None = None  # None until there is one
    varied: bool = False

    def add(self, low: float, high: float) -> None:
        """Add the lowest and the highest value of a step."""
        self.varied = (
            self.varied or not are_equal(low, high) or (self.value is not None and not are_equal(low, self.value))
        )
        self.value = low

    @property
    def constant(self) -> float | None:
        """The value; None if there is none, or several."""
        return None if self.varied else self.value

    @property
    def name(self) -> str:
        """Name of the finding that it never varied."""
        assert self.value is not None
        names = {"always_zero": 0.0, "always_one": 1.0}
        return next((name for name, value in names.items() if are_equal(self.value, value)), "always_the_same")


class Constant(Detector):
    """Detector of a reward that has been equal for every completion since the start of the run.

    Of several components, the one that decides is judged by its own raw values, because the weights and schedules of
    others move the total. A total that varied before is not reported: a policy that has learned everything earns the
    same everywhere.
    """

    names = ALWAYS

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._total = _Level()
        self._earned = {component.name: _Level() for component in _by_decision(context)}
        self._shut = {component.name for component in context.components if component.requires}  # so far in every step
        self._untaught = True
        self._steps = 0
        self._completions = 0

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
        if low is None or high is None:
            return
        self._total.add(low, high)
        for name, level in self._earned.items():
            if (earned := _earned(row, name)) is not None:
                level.add(*earned)
        num = count_completions(row)
        self._shut = {name for name in self._shut if number(row, f"rewards/{name}/gate_shut") == num}
        dead = number(row, "rewards/dead_groups")
        self._untaught = self._untaught and dead is not None and dead >= lowest_reaching(1.0)
        self._steps += 1
        self._completions += int(number(row, "rewards/outcomes/scored") or 0)
        if self._steps < CONSTANT_STEPS or self._completions < UNTAUGHT_COMPLETIONS:
            return
        component = self._constant_component()
        if component is not None:
            yield self._of_component(component)
        elif self._total.constant is not None and (self._untaught or self._completions >= CONSTANT_COMPLETIONS):
            yield self._of_total(self._total.constant)

    def _constant_component(self) -> str | None:
        """Return the component to report: the first that never varied, or the one that decides if it never earned."""
        if self._untaught:
            return next((name for name, level in self._earned.items() if level.constant is not None), None)
        decisive, level = next(iter(self._earned.items()), ("", _Level()))
        return decisive if level.constant is not None and level.name == "always_zero" else None

    def _of_component(self, name: str) -> Detection:
        level = self._earned[name]
        assert level.value is not None
        so = "no group taught anything" if self._untaught else "it has taught nothing"
        return Detection(
            level.name,
            Severity.ERROR if self._untaught else Severity.WARNING,
            1.0,
            f"{name} earned {level.value:g} in every completion of {self._steps} steps{self._gates(name)}; {so}; "
            f"{_ADVICE}",
            subject=name,
            evidence={
                f"rewards/{name}/min": level.value,
                f"rewards/{name}/max": level.value,
                "steps": self._steps,
                "completions": self._completions,
            },
            edits=self._edits(level),
        )

    def _gates(self, name: str) -> str:
        """Return a phrase about the component's gate and those that require it, if they never opened."""
        if name in self._shut:
            return f": its gate, which requires {self._requirement(name)}, never opened"
        others = [other for other in sorted(self._shut) if name in self.context.component(other).requires]
        gates = "; ".join(f"the gate of {other}, which requires {self._requirement(other)}" for other in others)
        return f", and {gates}, never opened" if gates else ""

    def _requirement(self, name: str) -> str:
        return " and ".join(f"{other} ≥ {least:g}" for other, least in self.context.component(name).requires.items())

    def _of_total(self, value: float) -> Detection:
        advice = _ADVICE
        if self.context.range is not None and 0.0 < value >= lowest_reaching(self.context.range[1]):
            advice += ", or take harder problems if they deserve that"
        return Detection(
            self._total.name,
            Severity.ERROR,
            1.0,
            f"all {self._completions} completions so far earned {value:g}, so every advantage is 0 and nothing is"
            f" learned; {advice}",
            evidence={
                "rewards/total/min": value,
                "rewards/total/max": value,
                "steps": self._steps,
                "completions": self._completions,
            },
            edits=self._edits(self._total),
        )

    def _edits(self, level: _Level) -> tuple[str, ...]:
        return pay_for_form(self.context) if level.name == "always_zero" else self.pay_for_answer()


_ADVICE = "let the reward tell completions apart (training.log_level=debug shows how it scores)"


def _by_decision(context: RunContext) -> list[ComponentContext]:
    """Return the components that may decide, the most decisive first; none if the total says the same.

    A component that is required by a gate decides before one of a larger weight. Form and length decide nothing.
    """
    training = context.training
    if len(training) == 1 and training[0].start_weight is None:
        return []
    required = {name for component in context.components for name in component.requires}
    serious = [c for c in training if c.name in required or c.kind not in (Kind.FORM, Kind.LENGTH)]
    return sorted(serious or training, key=lambda c: (c.name not in required, -abs(c.weight), not c.is_correctness))


def _earned(row: Row, name: str) -> tuple[float, float] | None:
    """Return the lowest and the highest value that a component earned in a step; a shut gate earns 0."""
    ends = [number(row, f"rewards/{name}/{leaf}") for leaf in ("min", "max")]
    numbers = [end for end in ends if end is not None] + [0.0] * bool(number(row, f"rewards/{name}/gate_shut"))
    return (min(numbers), max(numbers)) if numbers and ends.count(None) != 1 else None


SPARSE_STEPS = 5
"""Steps over which shares are averaged."""
SPARSE_COMPLETIONS = 256
"""Completions that these steps must have; fewer do not show shares of a few percent."""
SPARSE_SHARE = 0.05
"""A reward that a smaller share earns is sparse: with 8 completions per group, two of three groups earn nothing."""
SPARSE_START = 0.15
"""A share that was above this in some step was lost by the policy, not withheld by the reward."""
SPARSE_DEAD = 0.6
"""Least share of dead groups, which follows if so few completions earn the reward."""


class Sparse(Detector):
    """Detector of a reward from which hardly any completion earns more than the minimum."""

    names = ("sparse",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._earned = Window(SPARSE_STEPS)
        self._dead = Window(SPARSE_STEPS)
        self._completions = Window(SPARSE_STEPS)
        self._most = 0.0

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        at_least = number(row, "rewards/total/at_min")
        low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
        if low is None or high is None or at_least is None:
            return
        floor = low if self.context.range is None else self.context.range[0]
        # If all values of a batch are equal, they count as the floor unless the declared floor is lower.
        earned = 1.0 - at_least if low < high else float(low > floor)
        self._most = max(self._most, earned)
        self._earned.add(earned)
        self._dead.add(number(row, "rewards/dead_groups"))
        self._completions.add(count_completions(row))
        if not (self._earned.is_full and self._dead.is_full):
            return
        share, dead = self._earned.mean, self._dead.mean
        enough = self._completions.mean * SPARSE_STEPS >= SPARSE_COMPLETIONS
        if enough and 0 < share <= SPARSE_SHARE and dead >= SPARSE_DEAD and self._most <= SPARSE_START:
            yield Detection(
                "sparse",
                Severity.WARNING,
                1.0 - share,
                f"{share:.1%} of the completions of the last {SPARSE_STEPS} steps earned more than the least, so "
                f"in {dead:.0%} of the groups all completions earn the same; sample more completions per prompt, "
                "or reward intermediate steps",
                evidence={"share_earning": share, "rewards/dead_groups": dead},
                edits=(assign("grpo.num_generations", 2 * self.context.num_generations), *pay_for_form(self.context)),
            )


CLUSTERED_STEPS = 5
"""Steps in which the scores must be close together."""
CLUSTERED_SPREAD = 0.03
"""Largest share of the range between their extremes; differences this small are seldom intended."""
CLUSTERED_DISTINCT = 3
"""Fewest different values: a reward of two close values is coarse, not clustered."""

CLUSTERED_UNSCALED = ("none", "leave_one_out", "mean")
"""Values of `grpo.advantage_scaling` that do not divide by a std, and so magnify nothing."""


class Clustered(Detector):
    """Detector of scores that use so little of their range that division by their std magnifies trifles."""

    names = ("clustered",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._spread = Window(CLUSTERED_STEPS)
        self._distinct = Window(CLUSTERED_STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        if self.context.settings.get("grpo.advantage_scaling") in CLUSTERED_UNSCALED:
            return
        low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
        span = 0.0 if self.context.range is None else span_of(self.context, row)
        if low is None or high is None:
            return
        if span == 0:
            span = max(abs(low), abs(high))  # without a declared range, compare with their own size
        self._spread.add((high - low) / span if span else 0.0)
        self._distinct.add(number(row, "rewards/total/distinct"))
        if not (self._spread.is_full and self._distinct.is_full):
            return
        if 0 < self._spread.high <= CLUSTERED_SPREAD and self._distinct.mean >= CLUSTERED_DISTINCT:
            component = max(self.context.training, key=lambda c: abs(c.weight))
            yield Detection(
                "clustered",
                Severity.WARNING,
                1.0 - self._spread.mean,
                f"all scores lie between {low:g} and {high:g}, {self._spread.mean:.1%} of their range apart: the "
                "advantage amplifies such small differences, whatever they mean; spread the scores, or do not divide "
                "by their std",
                evidence={
                    "rewards/total/min": low,
                    "rewards/total/max": high,
                    "rewards/total/distinct": self._distinct.mean,
                },
                edits=(
                    change_component(self.context, component.name, transform=["rank"]),
                    assign("grpo.advantage_scaling", "none"),
                ),
            )
