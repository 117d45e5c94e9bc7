"""Comparison of a replay with the stored steps: totals, advantages, groups, and the completions that move most."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.rounding import join_equal
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.visible_text import one_line
from agent_tunix.workbench.replay.replaying import RecordedStep, ReplayedStep, show_figure

Floats = NDArray[np.float64]

_LONGEST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Mover:
    """A completion whose total or advantage differs in the replay."""

    rollout_id: str
    response: str
    before: tuple[float | None, float]  # stored total and advantage; a total of None means unscored
    after: tuple[float | None, float]  # total and advantage in the replay
    # Component → raw value before and after, where they differ.
    components: Mapping[str, tuple[float | None, float | None]]
    detail: str

    @property
    def distance(self) -> float:
        """Absolute change of the advantage."""
        return abs(self.after[1] - self.before[1])

    def to_data(self) -> dict[str, Any]:
        """Return the mover as JSON data."""
        return {
            "rollout_id": self.rollout_id,
            "response": self.response,
            "total": list(self.before[:1] + self.after[:1]),
            "advantage": list(self.before[1:] + self.after[1:]),
            "components": {name: list(values) for name, values in self.components.items()},
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """Comparison of a replay with the stored steps."""

    steps: int
    completions: int
    groups: int
    equal_totals: int  # Completions whose total is equal to the last bit. Two unscored totals are equal.
    equal_advantages: int  # completions whose float32 advantage is equal to the last bit
    # Mean stored total of the scored completions; None if none was scored. `mean_after` is the replay's.
    mean_before: float | None
    mean_after: float | None
    outcomes_before: Mapping[str, int]  # Outcome → stored completions. `outcomes_after` are the replay's.
    outcomes_after: Mapping[str, int]
    sign_flips: int  # completions whose advantage changed its sign
    newly_dead: int  # groups with an advantage before and none in the replay
    newly_alive: int  # groups without an advantage before and with one in the replay
    dead_before: int  # groups without an advantage before
    # Spearman's correlation of the totals that are scored in both; None if it is undefined.
    rank_correlation: float | None
    # Mean of Spearman's correlation within groups, over the groups where it is defined.
    group_rank_correlation: float | None
    changed_components: Mapping[str, int]  # component of both → completions on which its raw value or outcome differs
    movers: tuple[Mover, ...] = ()  # completions whose advantages move most, farthest first

    @property
    def identical(self) -> bool:
        """True if every total and every advantage is equal to the last bit."""
        return self.equal_totals == self.equal_advantages == self.completions

    def __str__(self) -> str:
        return "\n".join(map(one_line, self.lines()))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the lines in a notebook."""
        printer.text(str(self))

    def to_data(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "movers"}
        return {**fields, "identical": self.identical, "movers": [mover.to_data() for mover in self.movers]}

    def lines(self, before: str = "the stored") -> Iterator[str]:
        """Yield lines of text for a terminal. `before` names the other side of the comparison."""
        yield f"{self.completions:,} completions of {self.steps:,} steps, in {self.groups:,} groups"
        if self.identical:
            yield f"every total and every advantage is {before} one, to the last bit"
            return
        yield f"mean total           {show_figure(self.mean_before)} → {show_figure(self.mean_after)}"
        yield f"totals changed       {_share(self.completions - self.equal_totals, self.completions)}"
        most = f", by at most {abs(self.movers[0].after[1] - self.movers[0].before[1]):.2g}" if self.movers else ""
        yield f"advantages changed   {_share(self.completions - self.equal_advantages, self.completions)}{most}"
        yield f"sign of advantage    {_share(self.sign_flips, self.completions)} flipped"
        dead = self.dead_before + self.newly_dead - self.newly_alive
        yield (
            f"dead groups          {self.dead_before} → {dead} ({self.newly_dead} newly dead,"
            f" {self.newly_alive} newly alive)"
        )
        yield (
            f"rank correlation     {show_figure(self.rank_correlation)} over all,"
            f" {show_figure(self.group_rank_correlation)} within groups"
        )
        for outcome in Outcome:
            counts = self.outcomes_before[outcome], self.outcomes_after[outcome]
            if counts[0] != counts[1]:
                yield f"{outcome:<20} {counts[0]} → {counts[1]}"
        for name, count in self.changed_components.items():
            yield f"component {name}: differs on {_share(count, self.completions)}"
        for mover in self.movers:
            yield from _mover_lines(mover)


def _mover_lines(mover: Mover) -> Iterator[str]:
    (total, advantage), (new_total, new_advantage) = mover.before, mover.after
    yield ""
    yield (
        f"{mover.rollout_id}: total {show_figure(total)} → {show_figure(new_total)},"
        f" advantage {advantage:+.3f} → {new_advantage:+.3f}"
    )
    for name, (value, new_value) in mover.components.items():
        yield f"  {name}: {show_figure(value)} → {show_figure(new_value)}"
    text = " ".join(mover.response.split())
    yield f"  {text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + '…'}"


def _share(count: int, of: int) -> str:
    return f"{count:,} ({count / of:.1%})" if of else "0"


def compare(steps: Iterable[ReplayedStep], num_generations: int, num_movers: int = 10) -> ReplayComparison:
    """Compare replayed steps with the stored ones, step by step. Keep the `num_movers` completions that move most."""
    tally = _Tally(num_generations, num_movers)
    for step in steps:
        tally.add(step)
    return tally.comparison()


def _of_turns(step: RecordedStep | ReplayedStep) -> NDArray[np.float32]:
    """Return the [N, K] advantages of the turns; without credit by turn, those of the completions as [N, 1]."""
    return step.advantages[:, None] if step.turn_advantages is None else step.turn_advantages


def _same_turns(before_NK: NDArray[np.float32], after_NK: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return [N], True where the advantages of all turns are equal to the last bit."""
    if before_NK.shape != after_NK.shape:
        return np.zeros(len(before_NK), np.bool_)
    return np.asarray(((before_NK == after_NK) | (np.isnan(before_NK) & np.isnan(after_NK))).all(axis=1))


@dataclass(slots=True)
class _Tally:
    """Counts over steps. The tally keeps only the two totals of each completion."""

    num_generations: int
    num_movers: int
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    outcomes_before: Counter[str] = field(default_factory=Counter)
    outcomes_after: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    totals_before: list[Floats] = field(default_factory=list)
    totals_after: list[Floats] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    heap: list[tuple[float, int, Mover]] = field(default_factory=list)

    def add(self, step: ReplayedStep) -> None:
        """Add a step."""
        before = step.recorded
        before_N, after_N = before.totals, step.totals
        self.steps += 1
        self.counts["completions"] += before_N.size
        self.counts["equal_totals"] += int(_same(before_N, after_N).sum())
        turns_before, turns_after = _of_turns(before), _of_turns(step)
        equal_N = (before.advantages == step.advantages) & _same_turns(turns_before, turns_after)
        self.counts["equal_advantages"] += int(equal_N.sum())
        self.counts["sign_flips"] += int((np.sign(before.advantages) * np.sign(step.advantages) < 0).sum())
        was_dead_P, is_dead_P = (
            ~np.nan_to_num(advantages).any(axis=1).reshape(-1, self.num_generations).any(axis=1)
            for advantages in (turns_before, turns_after)
        )
        self.counts["groups"] += was_dead_P.size
        self.counts["dead_before"] += int(was_dead_P.sum())
        self.counts["newly_dead"] += int((is_dead_P & ~was_dead_P).sum())
        self.counts["newly_alive"] += int((was_dead_P & ~is_dead_P).sum())
        self.outcomes_before.update(score.outcome for score in before.scores)
        self.outcomes_after.update(score.outcome for score in step.scores)
        self.totals_before.append(before_N)
        self.totals_after.append(after_N)
        for low in range(0, before_N.size, self.num_generations):
            members = slice(low, low + self.num_generations)
            correlation = spearman(before_N[members], after_N[members])
            if correlation is not None:
                self.correlations.append(correlation)
        for index, (old, new) in enumerate(zip(before.scores, step.scores, strict=True)):
            changes = _changed_components(old, new)
            self.changed.update(name for name in changes if name in old.components and name in new.components)
            self._keep(step, index, changes)

    def _keep(self, step: ReplayedStep, index: int, changes: Mapping[str, tuple[float | None, float | None]]) -> None:
        step_recorded = step.recorded
        before = (_or_none(step_recorded.totals[index]), float(step_recorded.advantages[index]))
        after = (_or_none(step.totals[index]), float(step.advantages[index]))
        if before == after:
            return
        distance = abs(after[1] - before[1])
        if len(self.heap) == self.num_movers and (not self.heap or distance <= self.heap[0][0]):
            return
        sample = step_recorded.samples[index]
        mover = Mover(sample.rollout_id, sample.response, before, after, changes, step.scores[index].detail)
        # The unique count keeps the heap from comparing movers. Of equal distances, the earlier completion stays.
        entry = (distance, -(self.counts["completions"] + index), mover)
        if len(self.heap) < self.num_movers:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)

    def comparison(self) -> ReplayComparison:
        """Return the comparison of all added steps."""
        before_N, after_N = (np.concatenate(parts) if parts else np.zeros(0) for parts in self._totals())
        return ReplayComparison(
            steps=self.steps,
            completions=self.counts["completions"],
            groups=self.counts["groups"],
            equal_totals=self.counts["equal_totals"],
            equal_advantages=self.counts["equal_advantages"],
            mean_before=_mean(before_N),
            mean_after=_mean(after_N),
            outcomes_before={outcome.value: self.outcomes_before[outcome] for outcome in Outcome},
            outcomes_after={outcome.value: self.outcomes_after[outcome] for outcome in Outcome},
            sign_flips=self.counts["sign_flips"],
            newly_dead=self.counts["newly_dead"],
            newly_alive=self.counts["newly_alive"],
            dead_before=self.counts["dead_before"],
            rank_correlation=spearman(before_N, after_N),
            group_rank_correlation=float(np.mean(self.correlations)) if self.correlations else None,
            changed_components=dict(self.changed),
            movers=tuple(mover for _, _, mover in sorted(self.heap, key=lambda entry: entry[:2], reverse=True)),
        )

    def _totals(self) -> tuple[list[Floats], list[Floats]]:
        return self.totals_before, self.totals_after


def _changed_components(old: Score, new: Score) -> dict[str, tuple[float | None, float | None]]:
    """Return component → raw value before and after, where value or outcome differ; None if it has no value."""
    changes = {}
    for name in dict.fromkeys([*old.components, *new.components]):
        before, after = old.components.get(name), new.components.get(name)
        if before != after or _outcome(old, name) != _outcome(new, name):
            changes[name] = (before, after)
    return changes


def _outcome(score: Score, component: str) -> Outcome | None:
    part = score.parts.get(component)
    return None if part is None else part.outcome


def _same(before_N: Floats, after_N: Floats) -> NDArray[np.bool_]:
    return np.asarray((before_N == after_N) | (np.isnan(before_N) & np.isnan(after_N)))


def _or_none(total: float) -> float | None:
    return None if math.isnan(total) else float(total)


def _mean(totals_N: Floats) -> float | None:
    numbers_N = totals_N[~np.isnan(totals_N)]
    return float(numbers_N.mean()) if numbers_N.size else None


def spearman(first_N: Floats, second_N: Floats) -> float | None:
    """Return Spearman's rank correlation, with mean ranks for ties (C. Spearman, 1904).

    Pairs with a NaN are left out. The result is None if fewer than two pairs are left, or if one side is constant.
    """
    is_scored_N = ~(np.isnan(first_N) | np.isnan(second_N))
    ranks = [_ranks(values[is_scored_N]) for values in (first_N, second_N)]
    deviations = [rank - rank.mean() if rank.size else rank for rank in ranks]
    norm = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float(deviations[0] @ deviations[1]) / norm if norm > 0 else None


def _ranks(values: Floats) -> Floats:
    """Return ranks from 0. Equal values get their mean rank."""
    _, place, counts = np.unique(join_equal(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts + 1) / 2)[place], dtype=np.float64)
