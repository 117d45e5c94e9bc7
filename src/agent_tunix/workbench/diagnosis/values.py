"""Detection of rewards that cannot teach because of their values: constant, sparse, clustered."""

from collections.abc import Iterator

from agent_tunix.overrides import assign
from agent_tunix.rewards.rounding import are_equal, lowest_reaching
from agent_tunix.workbench.diagnosis.context import RunContext
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
from agent_tunix.workbench.diagnosis.findings import Severity

CONSTANT_STEPS = 3
"""Steps without any difference before a constant is reported: one batch may be all wrong or all right."""
CONSTANT_COMPLETIONS = 96
"""Completions before a constant is reported: if one in thirty earns the reward, 96 contain none in 4 % of the cases."""


class Constant(Detector):
    """Detector of a reward that has been equal for every completion since the start of the run.

    A total that varied before is not reported: a policy that has learned everything earns the same everywhere.
    """

    names = ("always_zero", "always_one", "always_the_same")

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._value: float | None = None
        self._varied = False
        self._steps = 0
        self._completions = 0

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        low, high = number(row, "rewards/total/min"), number(row, "rewards/total/max")
        if self._varied or low is None or high is None:
            return
        if not are_equal(low, high) or (self._value is not None and not are_equal(low, self._value)):
            self._varied = True
            return
        self._value = low
        self._steps += 1
        self._completions += int(number(row, "rewards/outcomes/scored") or 0)
        if self._steps >= CONSTANT_STEPS and self._completions >= CONSTANT_COMPLETIONS:
            yield self._detection()

    def _detection(self) -> Detection:
        assert self._value is not None
        named = {"always_zero": 0.0, "always_one": 1.0}
        name = next((name for name, value in named.items() if are_equal(self._value, value)), "always_the_same")
        edits = self.pay_for_answer()
        advice = "let the reward tell completions apart (training.log_level=debug shows how it scores)"
        if name == "always_zero":
            edits = pay_for_form(self.context)
        elif self.context.range is not None and self._value >= lowest_reaching(self.context.range[1]):
            advice += ", or take harder problems if they deserve that"
        return Detection(
            name,
            Severity.ERROR,
            1.0,
            f"all {self._completions} completions so far earned {self._value:g}, so every advantage is 0 and nothing is"
            f" learned; {advice}",
            evidence={
                "rewards/total/min": self._value,
                "rewards/total/max": self._value,
                "steps": self._steps,
                "completions": self._completions,
            },
            edits=edits,
        )


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
                edits=(
                    assign("grpo.num_generations", 2 * self.context.num_generations),
                    *pay_for_form(self.context),
                ),
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
