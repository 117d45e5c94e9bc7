"""Detection of a reward that rises while quality does not: by length, by form, or in another way.

The first of these witnesses that exists shows whether the policy gets better: a component of weight 0 (an oracle), the
evaluations on held-out problems, a component of kind correctness.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent_tunix.rewards.builtin import Kind
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, Row, Window, number, observed_span
from agent_tunix.workbench.diagnosis.edits import add_component, change_component, round_figure
from agent_tunix.workbench.diagnosis.findings import Severity
from agent_tunix.workbench.diagnosis.views import highest, longest, rewarded_but_wrong, shortest

STEPS = 4
"""Steps that make the start of a run, and its recent past."""
TOTAL_ROSE = 0.05
"""Share of its spread within a step by which the total must have risen, besides three standard errors."""
BETTER = 0.05
"""Share of its range by which a witness of quality must have risen for the policy to have become better."""
WORSE = 0.05
"""Share by which it must have fallen for the policy to have become worse, besides three standard errors."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a witness of quality. `rise` and `error` are shares of its range."""

    metric: str
    start: float
    now: float
    rise: float
    error: float

    @property
    def is_better(self) -> bool:
        """True if the policy has become better, or may have."""
        return self.rise >= BETTER

    @property
    def is_worse(self) -> bool:
        """True if the policy has clearly become worse."""
        return -self.rise >= max(WORSE, 3 * self.error)


class Quality:
    """Witnesses of the quality of the policy."""

    def __init__(self, context: RunContext) -> None:
        self._oracles = {component.name: Window(STEPS) for component in context.oracles}
        self._weighted = {c.name: Window(STEPS) for c in context.training if c.is_correctness}
        self._spans = {c.name: 1.0 if c.range is None else c.range[1] - c.range[0] for c in context.components}
        self._first: float | None = None
        self._last: float | None = None
        self._problems = 1.0

    def add(self, row: Row) -> None:
        """Add a row, including that of the evaluation before training."""
        for windows in (self._oracles, self._weighted):
            for name, window in windows.items():
                window.add(number(row, f"rewards/{name}/mean"))
        accuracy = number(row, "eval/accuracy")
        if self._first is None:
            self._first = accuracy
        elif accuracy is not None:
            self._last = accuracy
        self._problems = number(row, "eval/num_problems") or self._problems

    @property
    def is_awaited(self) -> bool:
        """True if the policy was evaluated before training and not since, so that the next evaluation decides."""
        return self._first is not None and self._last is None

    def changes(self) -> list[Change]:
        """Return the changes of the available witnesses, the most trustworthy first."""
        changes = [self._change(name, window) for name, window in self._oracles.items() if window.is_past_start]
        if self._first is not None and self._last is not None:
            # Variance of the difference of two shares, treated as independent.
            shares = (self._first * (1 - self._first) + self._last * (1 - self._last)) / self._problems
            changes.append(Change("eval/accuracy", self._first, self._last, self._last - self._first, shares**0.5))
        return changes + [self._change(name, window) for name, window in self._weighted.items() if window.is_past_start]

    def _change(self, name: str, window: Window) -> Change:
        span = self._spans[name] or 1.0
        return Change(f"rewards/{name}/mean", window.start, window.mean, window.rise / span, window.noise / span)


class Hacking(Detector):
    """Base of detectors of a reward that is exploited: the rise of the total and the change of quality."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._total = Window(STEPS)
        self._span = Window(STEPS)
        self.quality = Quality(context)

    def take_in(self, row: Row) -> None:
        """Add a row."""
        self.quality.add(row)
        self._total.add(number(row, "rewards/total/mean"))
        self._span.add(observed_span(row))

    @property
    def total_rose(self) -> bool:
        """True if the total has clearly risen since the start."""
        return self._total.is_past_start and self._total.is_rising(TOTAL_ROSE * max(self._span.high, self._span.start))

    def total_evidence(self, change: Change | None) -> dict[str, float | str]:
        """Return the figures of the total and of the witness that contradicts it."""
        figures: dict[str, float | str] = {"total_at_start": self._total.start, "rewards/total/mean": self._total.mean}
        if change is not None:
            figures |= {f"{change.metric} at start": change.start, change.metric: change.now}
        return figures

    def oracle_edit(self) -> tuple[str, ...]:
        """Return the override that gives the oracle a weight; without an oracle, one that pays for correct answers."""
        if self.context.oracles:
            return (change_component(self.context, self.context.oracles[0].name, weight=1.0),)
        return self.pay_for_answer()


LENGTH_CORRELATION = 0.8
"""Mean correlation of the total with the length. Its square is the share that length explains: nearly two thirds."""
LENGTH_SURE = 0.98
"""Correlation needed without a witness of quality. A tiny policy whose right answers are the long ones reaches 0.96."""
LENGTH_DISTINCT = 4
"""Fewest different totals in that case: of two totals, right and wrong, either may happen to be longer."""
LENGTH_GREW = 1.3
"""Factor by which completions have grown or shrunk."""


class LengthHacking(Hacking):
    """Detector of a total that follows length, while lengths follow the total and the policy gets no better."""

    names = ("length_hacking",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._correlation = Window(STEPS)
        self._length = Window(STEPS)
        self._distinct = Window(STEPS)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self.take_in(row)
        self._correlation.add(number(row, "rewards/total/length_correlation"))
        self._length.add(number(row, "completions/length_mean"))
        self._distinct.add(number(row, "rewards/total/distinct"))
        if not (self.total_rose and self._correlation.is_full and self._length.is_past_start):
            return
        if all(component.kind == Kind.FORM for component in self.context.training):
            return  # a form determines its length; `FormOnly` reports it
        # Correlation fades as lengths reach their limit, so the start counts too.
        correlation = max(self._correlation.mean, self._correlation.start, key=abs)
        grew = self._length.mean / max(self._length.start, 1.0)
        is_extreme = grew >= LENGTH_GREW if correlation > 0 else grew <= 1 / LENGTH_GREW
        changes = self.quality.changes()
        if not changes and self.quality.is_awaited:
            return
        has_witness = bool(changes)
        threshold = LENGTH_CORRELATION if has_witness else LENGTH_SURE
        about_answers = any(c.kind in (Kind.CORRECTNESS, Kind.COMPOSITE) for c in self.context.training)
        enough = has_witness or (self._distinct.mean >= LENGTH_DISTINCT and not about_answers)
        if abs(correlation) >= threshold and is_extreme and enough and not any(change.is_better for change in changes):
            yield self._detection(correlation, grew, changes[0] if changes else None)

    def _detection(self, correlation: float, grew: float, change: Change | None) -> Detection:
        limit = int(self.context.number("generation.max_generation_steps", 1024))
        longer = correlation > 0
        args = {"max_tokens": limit, "buffer_tokens": max(1, limit // 2)}
        edits = [add_component(self.context, "overlong", function="soft_overlong", args=args, weight=1.0)]
        return Detection(
            "length_hacking",
            Severity.WARNING,
            max(grew, 1 / grew),
            f"completions are {grew:.1f} times as long as at the start, and the total follows length (correlation "
            f"{correlation:.2f}), but nothing shows that answers improve: the policy is rewarded for "
            f"{('length' if longer else 'brevity')}; reward the answer instead",
            evidence={
                "rewards/total/length_correlation": correlation,
                "length_at_start": self._length.start,
                "completions/length_mean": self._length.mean,
                **self.total_evidence(change),
            },
            edits=(*(edits if longer else ()), *self.oracle_edit()),
            pick=longest if longer else shortest,
        )


FORM_SHARE = 0.7
"""Share of the total's rise that components of form explain."""


class FormOnly(Hacking):
    """Detector of a total that rises by its form alone."""

    names = ("format_only_learning",)

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._forms = {c.name: Window(STEPS) for c in context.training if c.kind == Kind.FORM}

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self.take_in(row)
        for name, window in self._forms.items():
            mean, weight = number(row, f"rewards/{name}/mean"), number(row, f"rewards/{name}/weight")
            window.add(None if mean is None or weight is None else weight * mean)
        if not (self.total_rose and self._forms):
            return
        rise = sum(window.rise for window in self._forms.values() if window.is_past_start)
        changes = self.quality.changes()
        if not changes or any(change.is_better for change in changes) or rise < FORM_SHARE * self._total.rise:
            return
        names = ", ".join(self._forms)
        first = self.context.component(next(iter(self._forms)))
        edits = self.oracle_edit()
        correct = next((c for c in self.context.training if c.is_correctness), None)
        if correct is not None:
            weight = min(0.1 * abs(correct.weight), 0.5 * max(first.weight, first.start_weight or 0.0))
            edits = (change_component(self.context, first.name, weight=round_figure(weight)),)
        yield Detection(
            "format_only_learning",
            Severity.WARNING,
            rise,
            f"the total rises only through form ({names}), and answers do not improve: {changes[0].metric} went from "
            f"{changes[0].start:.3g} to {changes[0].now:.3g}; reward the answer instead",
            subject=names if len(self._forms) == 1 else "",
            evidence={"rise_of_total": self._total.rise, "rise_by_form": rise, **self.total_evidence(changes[0])},
            edits=edits,
            pick=highest,
        )


class OracleDown(Hacking):
    """Detector of a total that rises while a witness of quality falls."""

    names = ("oracle_down",)

    def _detect(self, step: int, row: Row) -> Iterator[Detection]:
        self.take_in(row)
        if not self.total_rose:
            return
        worse = next((change for change in self.quality.changes() if change.is_worse), None)
        if worse is None:
            return
        oracle = next((c.name for c in self.context.oracles if worse.metric == f"rewards/{c.name}/mean"), None)
        yield Detection(
            "oracle_down",
            Severity.ERROR,
            -worse.rise,
            f"the total rose from {self._total.start:.3g} to {self._total.mean:.3g} while {worse.metric} fell from "
            f"{worse.start:.3g} to {worse.now:.3g}: the policy learns to exploit the reward instead of solving the "
            "task; stop at the best checkpoint and reward the intended result",
            evidence=self.total_evidence(worse),
            edits=self.oracle_edit(),
            pick=rewarded_but_wrong(oracle),
        )
