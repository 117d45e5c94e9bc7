"""Results of a replay: the values that are compared, totals and advantages, and the completions that move most."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards import Outcome, Score
from agent_tunix.service.replaying.stored_reward import Counterpart
from agent_tunix.workbench.replay import ReplayComparison, ReplayedStep
from agent_tunix.workbench.replay.comparing import spearman

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ValueChange:
    """Values of the compared component or total, with the saved source (before) and the changed source (after)."""

    mean_before: float | None  # mean over the completions with a value; None if there are none
    mean_after: float | None
    changed: int  # number of completions with another value or outcome
    rank_correlation: float | None  # Spearman's, over completions with a value in both; None if undefined
    # Outcome → number of completions. Completions for which the component was not computed do not count.
    outcomes_before: Mapping[str, int]
    outcomes_after: Mapping[str, int]  # the same for the changed source
    details: Mapping[str, str]  # outcome other than `scored` → detail of the first such completion


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a changed source on a run's stored completions."""

    counterpart: Counterpart
    steps: tuple[int, ...]
    is_all: bool  # True if these are all completions of the requested range
    in_time: bool  # True if scoring ended before the deadline
    values: ValueChange
    totals: ReplayComparison
    reordered_groups: int  # number of groups in which two completions swapped their order by total
    prompts: Mapping[str, str]  # rollout id → prompt, of the completions that move most
    problems: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class Tally:
    """Collector of values from replayed steps on their way to the comparison of totals."""

    name: str | None  # the component that is compared; None for the total
    num_generations: int
    steps: list[int] = field(default_factory=list)
    reordered_groups: int = 0  # as in `Replayed`
    prompts: dict[str, str] = field(default_factory=dict)  # rollout id → prompt, of all completions that passed
    _values: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    _outcomes: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    _details: dict[str, str] = field(default_factory=dict)
    _changed: int = 0

    def pass_on(self, steps: Iterable[ReplayedStep]) -> Iterator[ReplayedStep]:
        """Yield the steps unchanged, and collect their values."""
        for step in steps:
            self._add(step)
            yield step

    def values(self) -> ValueChange:
        """Return the change of the values."""
        before_N, after_N = (np.array(values, dtype=np.float64) for values in self._values)
        before, after = self._outcomes
        return ValueChange(
            _mean(before_N),
            _mean(after_N),
            self._changed,
            spearman(before_N, after_N),
            {outcome.value: before[outcome] for outcome in Outcome},
            {outcome.value: after[outcome] for outcome in Outcome},
            dict(self._details),
        )

    def _add(self, step: ReplayedStep) -> None:
        recorded = step.recorded
        self.steps.append(recorded.step)
        for sample, old, new in zip(recorded.samples, recorded.scores, step.scores, strict=True):
            self.prompts[sample.rollout_id] = sample.prompt
            self._add_values(self._part(old), self._part(new))
        groups = (totals.reshape(-1, self.num_generations) for totals in (recorded.totals, step.totals))
        self.reordered_groups += int(_reordered(*groups).sum())

    def _part(self, score: Score) -> Score | None:
        return score if self.name is None else score.parts.get(self.name)

    def _add_values(self, old: Score | None, new: Score | None) -> None:
        for part, values, outcomes in zip((old, new), self._values, self._outcomes, strict=True):
            values.append(np.nan if part is None or part.value is None else part.value)
            if part is not None:
                outcomes[part.outcome] += 1
        before, after = ((part and part.value, part and part.outcome) for part in (old, new))
        self._changed += before != after
        if new is not None and new.outcome is not Outcome.SCORED:
            self._details.setdefault(new.outcome, new.detail)


def _reordered(before_PG: Floats, after_PG: Floats) -> NDArray[np.bool_]:
    """Return [P], True for groups in which two completions swapped their order; NaN has no order."""
    orders = [np.sign(totals_PG[:, :, None] - totals_PG[:, None, :]) for totals_PG in (before_PG, after_PG)]
    return np.asarray((orders[0] * orders[1] < 0).any(axis=(1, 2)))


def _mean(values_N: Floats) -> float | None:
    known = values_N[~np.isnan(values_N)]
    return float(known.mean()) if known.size else None
