"""The total of a completion, as pure functions of its components' scores. Stored scores give the same totals again.

    total = Σ weight · value        over the components whose weight is not zero

A component's value is its raw value after its transforms, except:

- It is 0 if the gate is shut.
- If the component does not apply, it is the mean of the values in the completion's group. So it neither raises nor
  lowers the completion there. Shut gates count as 0, and the mean is 0 if no completion of the group has a value.

If a component fails (error, timeout, bad reference, or a value that `map` does not cover), the completion is unscored
and the detail names the component. If no component applies, the completion is unscored and not applicable. A component
of weight 0 never affects the total, even if it fails. If all weights are 0 at some step, the total is 0.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.mixture.gates import GateVerdict
from agent_tunix.rewards.sample import LARGEST_VALUE, Outcome, Score, Term
from agent_tunix.rewards.transforms import Transform, apply_transforms

_SCORED = Outcome.SCORED
FAILURES = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.BAD_REFERENCE})


def make_terms(
    weight: float,
    scores: Sequence[Score | None],
    verdicts: Sequence[GateVerdict],
    transforms: Sequence[Transform],
    groups: Sequence[int],
) -> list[Term]:
    """Return the terms of one component in a batch's totals. Scores are ignored where it does not count."""
    raw_B = [_raw(score, verdict) for score, verdict in zip(scores, verdicts, strict=True)]
    values_B = raw_B
    if transforms:
        values_B = apply_transforms(transforms, np.array(raw_B), np.asarray(groups, dtype=np.int64)).tolist()
    terms_of_value: dict[float, Term] = {}  # most values of a batch are equal, so their terms are shared
    terms: list[Term] = []
    for score, verdict, raw, value in zip(scores, verdicts, raw_B, values_B, strict=True):
        counts = raw == raw  # False for NaN
        term = terms_of_value.get(value) if counts else None
        if term is None:
            term = _term(weight, score, verdict, raw, value)
            if counts and term.outcome is _SCORED:
                terms_of_value[value] = term
        terms.append(term)
    if all(term.value is not None for term in terms):
        return terms
    neutral = _group_means(terms, groups)
    return [
        Term(weight, neutral.get(group, 0.0), term.outcome, detail=term.detail)
        if term.outcome is Outcome.NOT_APPLICABLE and not term.gate_shut
        else term
        for term, group in zip(terms, groups, strict=True)
    ]


def _raw(score: Score | None, verdict: GateVerdict) -> float:
    return math.nan if score is None or score.value is None or not verdict.is_open else score.value


def _term(weight: float, score: Score | None, verdict: GateVerdict, raw: float, value: float) -> Term:
    if verdict.is_shut:
        return Term(weight, 0.0, Outcome.NOT_APPLICABLE, gate_shut=True, detail=verdict.detail)
    if score is None or not verdict.is_open:
        return Term(weight, None, verdict.outcome, detail=verdict.detail)
    if score.value is None:
        return Term(weight, None, score.outcome, detail=score.detail)
    if math.isnan(value):
        return Term(weight, None, Outcome.ERROR, detail=f"its transform has no value for {raw:g}")
    return Term(weight, value)


def _group_means(terms: Sequence[Term], groups: Sequence[int]) -> dict[int, float]:
    """Return the mean of a component in each group, over the completions on which it has a value."""
    values = defaultdict(list)
    for term, group in zip(terms, groups, strict=True):
        if term.value is not None:
            values[group].append(term.value)
    return {group: _mean(members) for group, members in values.items()}


def _mean(values: Sequence[float]) -> float:
    """Return the mean, exact if all values are equal: a rounding error would become an advantage."""
    low = min(values)
    return low if low == max(values) else math.fsum(values) / len(values)


def total_of(terms: Mapping[str, Term]) -> tuple[float | None, Outcome, str]:
    """Return the total of one completion: value, outcome, and the reason if there is no value."""
    total, weighted, applies = 0.0, False, False
    for name, term in terms.items():
        if term.weight == 0:
            continue
        weighted = True
        if term.outcome is _SCORED or term.gate_shut:
            applies = True
        elif term.outcome in FAILURES:
            return None, term.outcome, f"component {name!r}: {term.detail}"
        total += term.contribution
    if weighted and not applies:
        return None, Outcome.NOT_APPLICABLE, "no component applies"
    if not abs(total) <= LARGEST_VALUE:
        detail = f"the absolute weighted sum must be at most {LARGEST_VALUE:g}, not {total}"
        return None, Outcome.ERROR, detail
    return total, _SCORED, ""


def describe_terms(parts: Mapping[str, Score], terms: Mapping[str, Term]) -> str:
    """Describe the origin of a total: `1 × correct 1 + 0.2 × tags 0.5 [2 of 4 tags]`."""
    if len(terms) == 1:
        ((name, term),) = terms.items()
        if term.weight == 1 and parts[name].value == term.value:
            return parts[name].detail
    return " + ".join(f"{term.weight:g} × {name} {_describe(parts.get(name), term)}" for name, term in terms.items())


def _describe(part: Score | None, term: Term) -> str:
    if term.gate_shut:
        return f"0 ({term.detail})"
    if term.outcome is Outcome.NOT_APPLICABLE:
        return f"{term.value:g} (not applicable: the group's mean)" + (f" [{term.detail}]" if term.detail else "")
    if term.value is None:
        return f"{term.outcome}" + (f" [{term.detail}]" if term.detail else "")
    if part is None or part.value is None:
        return f"{term.value:g}"
    value = f"{term.value:g}" if part.value == term.value else f"{part.value:g} → {term.value:g}"
    return value + (f" [{part.detail}]" if part.detail else "")


def totals_that_train(scores: Sequence[Score], on_failure: str) -> NDArray[np.float64]:
    """Return totals of shape [B]: NaN for an unscored completion; 0 for a failed one if `on_failure` is `zero`."""
    value_of_failure = 0.0 if on_failure == "zero" else math.nan
    return np.array(
        [
            value_of_failure if score.outcome in FAILURES else math.nan if score.value is None else score.value
            for score in scores
        ],
        dtype=np.float64,
    )


def weighed(scores: Sequence[Score], on_failure: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values_CB and weights_C of the components with a weight other than 0, for computing advantages.

    Unscored completions are NaN. Under `on_failure="zero"`, a failed completion is 0 in every component.
    """
    names = [name for name, term in (scores[0].terms if scores else {}).items() if term.weight != 0]
    weights_C = np.array([scores[0].terms[name].weight for name in names], dtype=np.float64)
    values_CB = np.full((len(names), len(scores)), np.nan)
    for column, score in enumerate(scores):
        if score.value is not None:
            values_CB[:, column] = [score.terms[name].value for name in names]
        elif on_failure == "zero" and score.outcome in FAILURES:
            values_CB[:, column] = 0.0
    return values_CB, weights_C
