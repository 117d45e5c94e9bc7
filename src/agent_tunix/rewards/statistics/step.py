"""The metrics of one step's rewards."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.rounding import join_equal
from agent_tunix.rewards.sample import Outcome, Sample, Score, Term
from agent_tunix.rewards.statistics.credit import advantage_parts, conflict_shares, pair_conflicts, variance_shares
from agent_tunix.rewards.statistics.groups import causes_of_death, duplicates
from agent_tunix.rewards.statistics.series import Metric, describe, describe_in_detail
from agent_tunix.rewards.turns import TurnRewards

Array = NDArray[np.float64]

TOTAL = "rewards/total"


def summarise(
    scores: Sequence[Score],
    totals: Array,
    advantages: NDArray[np.floating[Any]],
    *,
    num_generations: int,
    weights: Mapping[str, float],
    gated: Collection[str] = (),
    transformed: Collection[str] = (),
    samples: Sequence[Sample] = (),
    scaling: str = "group",
    ranges: Mapping[str, tuple[float, float] | None] | None = None,
    histogram_bins: int = 10,
    detailed: bool = False,
    turns: TurnRewards | None = None,
) -> dict[str, Metric]:
    """Return the metrics of one step's rewards, by their names in trackers.

    All completions have equal weight, whatever their length. Only scored ones count; a metric without values is None.
    The metrics of a component describe its raw values on all completions for which it was computed.

    Args:
        scores: Scores of a mixture, group by group.
        totals: [B] rewards used in training; NaN for an unscored completion.
        advantages: [B], or [B, K] of the turns with credit by turn, NaN after the last turn of each completion.
        num_generations: G, the completions of a group.
        weights: Effective weights of the components.
        gated: Components with a gate.
        transformed: Components with transforms.
        samples: The B completions; empty to omit metrics of lengths and repetitions.
        scaling: Scaling of the advantages: `grpo.advantage_scaling`.
        ranges: Declared ranges of components by name, and of the total as `total`; None if undeclared.
        histogram_bins: Number of bins of each histogram.
        detailed: True for all metrics; otherwise only mean, standard deviation, minimum and maximum of each series.
        turns: What the turns earned, with credit by turn; None without.

    Returns:
        Always `rewards/{total,<component>}/{mean,std,min,max}`, `rewards/<component>/weight`,
        `rewards/outcomes/<outcome>`, `rewards/dead_groups` and `advantages/std`. With transforms,
        `rewards/<component>/transformed/…`, of the transformed values. With a gate, `rewards/<component>/gate_shut`,
        the number of completions for which it was shut. `rewards/<component>/outcomes/…`, the number of each outcome
        other than `scored` that occurs. A group is dead if none of its completions has an advantage other than 0. With
        credit by turn, `advantages/std` and the shares are over turns.

        If `detailed`, also the metrics of `series.describe_in_detail` for each of these series,
        `rewards/groups/{all_highest,all_lowest,tied,unscored}`, `rewards/<component>/{advantage_share,conflict_share}`,
        `rewards/conflicts/<component>/<component>`, and with samples `completions/{duplicate_share,
        duplicate_score_std}`.
    """
    terms = {name: [score.terms[name] for score in scores] for name in weights}
    weighed_CB = _matrix([[term.value for term in terms[name]] for name in weights], len(scores))
    outcomes_B = [score.outcome for score in scores]
    scored_B = _are_scored(outcomes_B)
    totals = join_equal(np.asarray(totals, dtype=np.float64))  # so that no statistic amplifies rounding
    series = {TOTAL: np.where(scored_B, totals, np.nan)}
    for name, weighed_B in zip(weights, weighed_CB, strict=True):
        series[f"rewards/{name}"] = _raw(scores, name)
        if name in transformed:
            own_B = _are_scored([term.outcome for term in terms[name]])
            series[f"rewards/{name}/transformed"] = np.where(own_B, weighed_B, np.nan)
    values_SB = np.stack(list(series.values()))
    if not detailed:
        metrics = describe(list(series), values_SB)
    else:
        metrics = describe_in_detail(
            list(series),
            values_SB,
            bins=histogram_bins,
            ranges={f"rewards/{name}": span for name, span in (ranges or {}).items()},
            lengths_B=np.array([sample.num_tokens for sample in samples], dtype=np.float64) if samples else None,
        )
    for name, weight in weights.items():
        metrics[f"rewards/{name}/weight"] = weight
        metrics |= _count_outcomes(name, terms[name], name in gated)
    metrics |= {f"rewards/outcomes/{outcome}": outcomes_B.count(outcome) for outcome in Outcome}
    known = advantages[~np.isnan(advantages)]
    per_group = num_generations * (advantages.shape[1] if advantages.ndim > 1 else 1)
    dead_P = np.all(np.nan_to_num(advantages).reshape(-1, per_group) == 0, axis=1)
    metrics["rewards/dead_groups"] = float(dead_P.mean()) if dead_P.size else None
    metrics["advantages/std"] = float(np.std(known)) if known.size else None
    if not detailed:
        return metrics
    in_groups = (-1, num_generations)
    causes = causes_of_death(
        totals.reshape(in_groups), scored_B.reshape(in_groups), dead_P, (ranges or {}).get("total")
    )
    metrics |= {f"rewards/groups/{cause}": share for cause, share in causes.items()}
    # A failure that counts as 0 counts as 0 in every component.
    weighed_CB = np.where(scored_B, weighed_CB, 0.0)
    if turns is None:
        parts_CB = advantage_parts(totals, weighed_CB, _weights(weights), num_generations, scaling)
    else:
        parts_CB = _turn_parts(turns, _weights(weights), scaling)
    metrics |= _credit(weights, parts_CB)
    if samples:
        share, deviation = duplicates(samples, totals, scored_B, num_generations)
        metrics["completions/duplicate_share"] = share
        metrics["completions/duplicate_score_std"] = deviation
    return metrics


def _turn_parts(turns: TurnRewards, weights_C: Array, scaling: str) -> Array:
    """Return the part of each component in the advantage of each turn, of shape [C, turns]."""
    parts_CNK = turns.estimate(
        lambda totals_B, values_CB, size: advantage_parts(totals_B, values_CB, turns.weights, size, scaling)
    )
    parts = np.zeros((len(weights_C), int(turns.exists.sum())))
    parts[weights_C != 0] = parts_CNK[:, turns.exists]
    return parts


def _credit(weights: Mapping[str, float], parts_CB: Array) -> dict[str, Metric]:
    """Return each component's share in the advantages and its conflicts. Pairs are only of components with a weight."""
    shares = variance_shares(parts_CB)
    metrics: dict[str, Metric] = {}
    for row, (name, against) in enumerate(zip(weights, conflict_shares(parts_CB), strict=True)):
        metrics[f"rewards/{name}/advantage_share"] = None if shares is None else shares[row]
        metrics[f"rewards/{name}/conflict_share"] = against
    weighted = [name for name, weight in weights.items() if weight != 0]
    pairs = pair_conflicts(weighted, parts_CB[_weights(weights) != 0])
    return metrics | {f"rewards/conflicts/{one}/{other}": share for (one, other), share in pairs.items()}


def _count_outcomes(name: str, terms: Sequence[Term], is_gated: bool) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    if is_gated:
        metrics[f"rewards/{name}/gate_shut"] = sum(term.gate_shut for term in terms)
    if [term.outcome for term in terms].count(Outcome.SCORED) < len(terms):
        outcomes = Counter(term.outcome for term in terms if not term.gate_shut)
        for outcome in Outcome:
            if outcomes[outcome] and outcome is not Outcome.SCORED:
                metrics[f"rewards/{name}/outcomes/{outcome}"] = outcomes[outcome]
    return metrics


def _are_scored(outcomes_B: Sequence[Outcome]) -> NDArray[np.bool_]:
    scored = Outcome.SCORED  # looking up a member of an enumeration is slow
    return np.array([outcome is scored for outcome in outcomes_B], dtype=bool)


def _raw(scores: Sequence[Score], name: str) -> Array:
    # A missing value becomes NaN.
    return np.array([score.components.get(name) for score in scores], dtype=np.float64)


def _matrix(rows: Sequence[Sequence[float | None]], width: int) -> Array:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def _weights(weights: Mapping[str, float]) -> Array:
    return np.array(list(weights.values()), dtype=np.float64)
