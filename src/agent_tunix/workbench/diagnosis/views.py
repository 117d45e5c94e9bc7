"""Views of completions, from which a diagnosis picks those that show a finding."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_tunix.rewards.mixture import FAILURES
from agent_tunix.rewards.rounding import are_equal
from agent_tunix.rewards.sample import Outcome, Sample, Score
from agent_tunix.rewards.statistics.reasons import group_reasons

NUM_SHOWN = 3
"""Completions named in a finding; few enough for a line of a log."""


@dataclass(frozen=True, slots=True)
class RolloutView:
    """View of one completion."""

    rollout_id: str  # `"<step>_<prompt>_<generation>"`
    group: int  # number of its prompt within the step
    response: str
    total: float | None  # its total reward; None if it is unscored
    # Raw value of each component; None if it has none.
    components: Mapping[str, float | None] = field(default_factory=dict)
    outcome: str = Outcome.SCORED
    length: int = 0  # in tokens
    ended: bool = True  # True if the model ended it
    reasons: Mapping[str, str] = field(default_factory=dict)  # reasons for failures by component; "" for the total
    forks: Sequence[str] = ()  # of an agent, the first difference of each row of tokens that forks

    @classmethod
    def of(cls, sample: Sample, score: Score) -> "RolloutView":
        """Return the view of a completion and its score."""
        return cls(
            sample.rollout_id,
            sample.group_id,
            sample.response,
            score.value,
            score.components,
            score.outcome,
            sample.num_tokens,
            sample.ended,
            {name: one.detail for name, one in {"": score, **score.parts}.items() if one.outcome in FAILURES},
            _forks(sample),
        )


Views = Sequence[RolloutView]
Pick = Callable[[Views], Iterable[RolloutView]]
"""Function that chooses the completions that show a finding, the clearest first."""


def forked(views: Views) -> Iterable[RolloutView]:
    """Return the completions that are several rows of tokens, those with the most first."""
    return sorted((view for view in views if view.forks), key=lambda view: -len(view.forks))


def any_of(views: Views) -> Iterable[RolloutView]:
    """Return all completions, in their order."""
    return views


def highest(views: Views) -> Iterable[RolloutView]:
    """Return the scored completions, the highest total first."""
    return sorted((view for view in views if view.total is not None), key=lambda view: -(view.total or 0.0))


def longest(views: Views) -> Iterable[RolloutView]:
    """Return the completions, the longest first."""
    return sorted(views, key=lambda view: -view.length)


def shortest(views: Views) -> Iterable[RolloutView]:
    """Return the completions, the shortest first."""
    return sorted(views, key=lambda view: view.length)


def cut_off(views: Views) -> Iterable[RolloutView]:
    """Return the completions that reached the length limit."""
    return (view for view in views if not view.ended)


def failed(views: Views) -> Iterable[RolloutView]:
    """Return the completions on which a reward failed."""
    return (view for view in views if view.outcome not in (Outcome.SCORED, Outcome.NOT_APPLICABLE))


def failed_in(component: str) -> Pick:
    """Return a pick of completions without a value of a component, those with a failed total first."""
    return lambda views: sorted(
        (view for view in views if view.components.get(component) is None),
        key=lambda view: view.outcome in (Outcome.SCORED, Outcome.NOT_APPLICABLE),
    )


def highest_in(component: str) -> Pick:
    """Return a pick of completions with a value of a component, the highest first."""
    return lambda views: sorted(
        (view for view in views if view.components.get(component) is not None),
        key=lambda view: -(view.components[component] or 0.0),
    )


def disagreeing(views: Views) -> Iterable[RolloutView]:
    """Yield equal responses to one prompt with different totals, in pairs, the largest difference first."""
    same: dict[tuple[int, str], list[RolloutView]] = {}
    for view in views:
        if view.total is not None:
            same.setdefault((view.group, view.response), []).append(view)
    pairs = []
    for members in same.values():
        low, high = min(members, key=_total), max(members, key=_total)
        if _total(low) < _total(high):
            pairs.append((_total(high) - _total(low), high, low))
    for _, high, low in sorted(pairs, key=lambda pair: -pair[0]):
        yield from (high, low)


def rewarded_but_wrong(oracle: str | None) -> Pick:
    """Return a pick of scored completions: lowest value of the oracle first, and of equal ones the highest total."""

    def pick(views: Views) -> Iterable[RolloutView]:
        candidates = [view for view in views if view.total is not None]
        return sorted(candidates, key=lambda view: ((view.components.get(oracle or "") or 0.0), -(view.total or 0.0)))

    return pick


def most_frequent_reason(component: str) -> Callable[[Views], str]:
    """Return a function that names the most frequent reason for failures of a component; "" means the total."""

    def tell(views: Views) -> str:
        reasons = group_reasons(view.reasons[component] for view in views if component in view.reasons)
        if not reasons:
            return ""
        others = len(reasons) - 1
        more = f", and {others} other reason{'s' if others > 1 else ''}" if others else ""
        return f"in this step {reasons[0][1]} × {reasons[0][0]}{more}"

    return tell


def most_frequent_difference(views: Views) -> str:
    """Return the first text in which most forks differ in this step; "" without forks."""
    differences = group_reasons(difference for view in views for difference in view.forks if difference)
    return f"in this step {differences[0][1]} × {differences[0][0]}" if differences else ""


def earnings_of_dead_groups(views: Views) -> str:
    """Return a phrase about what most groups without an advantage earn in this step, and from which components."""
    groups: dict[int, list[RolloutView]] = {}
    for view in views:
        groups.setdefault(view.group, []).append(view)
    dead = [members[0] for members in groups.values() if _is_tied([view.total for view in members])]
    if not dead:
        return ""
    (total, *_), count = Counter((one.total,) for one in dead).most_common(1)[0]
    if total is None:
        return f"in this step {count} of {len(dead)} such groups are not scored"
    first = next(one for one in dead if one.total == total)
    earned = [f"{name} {value:.4g}" for name, value in first.components.items() if value]
    parts = f" ({', '.join(earned)})" if earned and len(first.components) > 1 else ""
    return f"in this step {count} of {len(dead)} such groups earn {total:.4g} per completion{parts}"


def _is_tied(totals: Sequence[float | None]) -> bool:
    """Return True if no completion of a group is scored, or all are and have equal totals."""
    numbers = [total for total in totals if total is not None]
    return not numbers or (len(numbers) == len(totals) and bool(are_equal(min(numbers), max(numbers))))


def _forks(sample: Sample) -> list[str]:
    agent = None if sample.episode is None else sample.episode.agent
    return [] if agent is None else [call["first_difference"] for call in agent["calls"] if call["cause"]]


def _total(view: RolloutView) -> float:
    return view.total or 0.0
