"""The part of each component in the advantages, against loops over completions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import Mixture, Sample, compute_advantages
from agent_tunix.rewards.advantages import SCALINGS
from agent_tunix.rewards.mixture.totals import weighed
from agent_tunix.rewards.statistics.credit import advantage_parts, conflict_shares, pair_conflicts, variance_shares
from tests.rewards.statistics.support import metrics_of, mixture_of
from tests.rewards.support import by_column

G = 4
NAMES = ("a", "b", "c")
# Multiples of a power of two, so that what is equal on paper is equal in floats.
NUMBERS = st.integers(-16, 16).map(lambda number: number / 8)
CELLS = NUMBERS | st.just(None) | st.just(math.nan)  # not applicable; failed
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, CELLS)), min_size=2 * G, max_size=2 * G)


def gated_mixture(weights: list[float], on_failure: str) -> Mixture:
    """Three components, the last behind a gate."""
    gates = {"c": {"a": 0.5}}
    pairs = zip(NAMES, weights, strict=True)
    return Mixture([by_column(n, w, requires=gates.get(n, {})) for n, w in pairs], on_failure=on_failure)


def naive_shares(parts_CB: list[list[float]]) -> list[float] | None:
    """cov(a_c, A) / var(A), a completion at a time."""
    advantages = [sum(column) for column in zip(*parts_CB, strict=True)]
    variance = sum(advantage**2 for advantage in advantages)
    if not variance:
        return None
    return [sum(p * a for p, a in zip(parts_B, advantages, strict=True)) / variance for parts_B in parts_CB]


def naive_parts(totals: Any, values: Any, weights: Any, scaling: str) -> list[list[float]]:
    """a_c of each completion, from the formulas in the docstring of `credit`."""
    epsilon = 1e-6
    scored = [not math.isnan(total) for total in totals]

    def members(index: int) -> list[int]:
        start = index // G * G
        return [i for i in range(start, start + G) if scored[i]]

    def std(numbers: list[float]) -> float:
        return float(np.std(numbers, ddof=1)) if len(numbers) > 1 and min(numbers) < max(numbers) else 0.0

    parts = [[0.0] * len(totals) for _ in weights]
    for index in range(len(totals)):
        group = members(index)
        dead = len(group) < 2 or len({totals[i] for i in group}) == 1
        if not scored[index] or len(group) < 2 or (dead and scaling != "component"):
            continue
        for c, weight in enumerate(weights):
            own = [values[c][i] for i in group]
            part = weight * (values[c][index] - float(np.mean(own))) if min(own) < max(own) else 0.0
            divisor = {
                "group": std([totals[i] for i in group]) + epsilon,
                "batch": std([total for total in totals if not math.isnan(total)]) + epsilon,
                "batch_centred": 1.0,
                "mean": float(np.mean([abs(totals[i]) for i in group])) + epsilon,
                "none": 1.0,
                "leave_one_out": (len(group) - 1) / len(group),
                "component": std(own) + epsilon,
            }[scaling]
            parts[c][index] = part / divisor
    if scaling in ("component", "batch_centred"):
        sums = [sum(column) for column, ok in zip(zip(*parts, strict=True), scored, strict=True) if ok]
        parts = [[part / (std(sums) + epsilon) for part in parts_B] for parts_B in parts]
    return parts


@given(rows=ROWS, weights=st.lists(NUMBERS, min_size=3, max_size=3), on_failure=st.sampled_from(["exclude", "zero"]))
def test_parts_sum_to_the_advantages_and_shares_to_one(
    rows: list[dict[str, Any]], weights: list[float], on_failure: str
) -> None:
    """With unscored completions, components that do not apply, shut gates and weights of 0 among them."""
    if not any(weights):
        weights = [1.0, *weights[1:]]
    mixture = gated_mixture(weights, on_failure)
    scores = mixture.score([Sample("x", columns=row, group_id=index // G) for index, row in enumerate(rows)])
    totals_B = mixture.totals(scores)
    values_CB, weights_C = weighed(scores, on_failure)
    weighted = [name for name, weight in zip(NAMES, weights, strict=True) if weight]
    for scaling in SCALINGS:
        parts_CB = advantage_parts(totals_B, values_CB, weights_C, G, scaling)
        advantages_B = mixture.advantages(scores, G, scaling)
        np.testing.assert_allclose(parts_CB.sum(axis=0), advantages_B, atol=1e-9)
        np.testing.assert_allclose(parts_CB, naive_parts(totals_B, values_CB, weights_C, scaling), atol=1e-9)

        metrics = metrics_of(mixture, rows, G, scaling, detailed=True)
        shares = {name: metrics[f"rewards/{name}/advantage_share"] for name in NAMES}
        expected = naive_shares(parts_CB.tolist())
        if advantages_B.any() and np.abs(advantages_B).max() > 1e-6 * np.abs(parts_CB).max():
            assert expected is not None
            assert sum(shares.values()) == pytest.approx(1.0, abs=1e-9 * max(1.0, *map(abs, shares.values())))
            for name, share in zip(weighted, expected, strict=True):
                assert shares[name] == pytest.approx(share, rel=1e-6, abs=1e-9)
            assert all(shares[name] == 0.0 for name in set(NAMES) - set(weighted))
        elif not advantages_B.any():
            assert set(shares.values()) == {None}


def test_a_component_that_works_against_the_outcome_has_a_negative_share() -> None:
    rows = [{"a": 3.0, "b": 0.0}, {"a": 0.0, "b": 1.0}]
    metrics = metrics_of(mixture_of("a", "b"), rows, 2, "none", detailed=True)
    assert metrics["rewards/a/advantage_share"] == pytest.approx(1.5)
    assert metrics["rewards/b/advantage_share"] == pytest.approx(-0.5)
    assert metrics["rewards/a/conflict_share"] == metrics["rewards/b/conflict_share"] == 1.0
    assert metrics["rewards/conflicts/a/b"] == 1.0


def test_components_that_cancel_leave_no_variance_to_explain() -> None:
    rows = [{"a": 0.1, "b": 0.2}, {"a": 0.2, "b": 0.1}]  # totals of 0.30000000000000004 both
    metrics = metrics_of(mixture_of("a", "b"), rows, 2, detailed=True)
    assert metrics["rewards/a/advantage_share"] is None
    assert variance_shares(np.array([[0.1, -0.1], [-0.1, 0.1 + 2e-17]])) is None


@given(st.lists(st.lists(NUMBERS, min_size=6, max_size=6), min_size=1, max_size=4))
def test_conflicts_equal_a_count_by_completion(parts: list[list[float]]) -> None:
    parts_CB = np.array(parts)
    names = [f"c{row}" for row in range(len(parts))]
    for found, own_B in zip(conflict_shares(parts_CB), parts_CB, strict=True):
        rest_B = parts_CB.sum(axis=0) - own_B
        signs = [p * r for p, r in zip(own_B, rest_B, strict=True) if p and r]
        assert found == (pytest.approx(sum(sign < 0 for sign in signs) / len(signs)) if signs else None)
    pairs = pair_conflicts(names, parts_CB)
    assert list(pairs) == [(one, other) for row, one in enumerate(names) for other in names[row + 1 :]]
    for (one, other), found in pairs.items():
        signs = [
            p * q for p, q in zip(parts_CB[names.index(one)], parts_CB[names.index(other)], strict=True) if p and q
        ]
        assert found == (pytest.approx(sum(sign < 0 for sign in signs) / len(signs)) if signs else None)


def test_a_rest_that_is_nothing_but_rounding_is_no_conflict() -> None:
    parts_CB = np.array([[1.0, -1.0], [0.1, -0.1], [-0.1, 0.1]])
    assert conflict_shares(parts_CB)[0] is None


def test_parts_of_unscored_completions_are_zero_whatever_they_hold() -> None:
    totals_B = np.array([0.0, 1.0, np.nan, np.nan])
    values_CB = np.array([[0.0, 1.0, np.inf, np.nan]])
    parts_CB = advantage_parts(totals_B, values_CB, np.array([1.0]), 4)
    np.testing.assert_allclose(parts_CB[0], compute_advantages(totals_B, 4))
    assert parts_CB[0, 2:].tolist() == [0.0, 0.0]
