import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import Mixture, Outcome, Sample
from agent_tunix.rewards.mixture.routes import Route
from agent_tunix.rewards.statistics import summarise
from agent_tunix.rewards.transforms import Clip
from tests.rewards.statistics.support import metrics_of, mixture_of
from tests.rewards.support import by_column

ROWS = [{"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 3.0}, {"a": math.nan, "b": 5.0}]


NUMBERS = {"mean", "std", "min", "max"}
DETAIL = {"variance", "histogram", "p10", "p50", "p90", "distinct", "at_min", "at_max"}


def test_the_metrics_have_the_names_that_trackers_show() -> None:
    expected = {f"rewards/{name}/{leaf}" for name in ("total", "a", "b") for leaf in NUMBERS}
    expected |= {"rewards/a/weight", "rewards/b/weight", "rewards/a/outcomes/error"}
    expected |= {f"rewards/outcomes/{outcome}" for outcome in Outcome}
    expected |= {"rewards/dead_groups", "advantages/std"}
    assert set(metrics_of(mixture_of("a", "b"), ROWS, 2)) == expected
    expected |= {f"rewards/{name}/{leaf}" for name in ("total", "a", "b") for leaf in DETAIL}
    expected |= {f"rewards/groups/{cause}" for cause in ("all_highest", "all_lowest", "tied", "unscored")}
    expected |= {f"rewards/{name}/{leaf}" for name in "ab" for leaf in ("advantage_share", "conflict_share")}
    expected |= {"rewards/conflicts/a/b"}
    assert set(metrics_of(mixture_of("a", "b"), ROWS, 2, detailed=True)) == expected
    expected |= {f"rewards/{name}/length_correlation" for name in ("total", "a", "b")}
    expected |= {"completions/duplicate_share", "completions/duplicate_score_std"}
    samples = [Sample("x")] * len(ROWS)
    assert set(metrics_of(mixture_of("a", "b"), ROWS, 2, detailed=True, samples=samples)) == expected


def test_a_component_of_weight_0_explains_nothing_and_is_in_no_pair() -> None:
    metrics = metrics_of(mixture_of("a", "b", b=0.0), [{"a": 0.0, "b": 3.0}, {"a": 1.0, "b": 2.0}], 2, detailed=True)
    assert (metrics["rewards/a/advantage_share"], metrics["rewards/b/advantage_share"]) == (1.0, 0.0)
    assert metrics["rewards/b/conflict_share"] is None
    assert not any(name.startswith("rewards/conflicts") for name in metrics)


def test_gates_transforms_and_routes_are_told_apart_from_scores_and_failures() -> None:
    mixture = Mixture(
        [
            by_column("a", 0.5),
            by_column("b", requires={"a": 1.0}, transforms=(Clip(0.0, 2.0),)),
            by_column("c", 0.0, route=Route({"kind": ("math",)})),
        ]
    )
    rows: list[dict[str, Any]] = [
        {"a": 0.0, "b": 9.0, "c": 1.0, "kind": "math"},
        {"a": 1.0, "b": 3.0, "c": 2.0, "kind": "math"},
        {"a": 1.0, "b": 1.0, "c": 5.0, "kind": "poem"},
        {"a": 2.0, "b": None, "c": 5.0, "kind": "poem"},
    ]
    metrics = metrics_of(mixture, rows, 2, gated=["b"], transformed=["b"])
    expected = {
        "b/gate_shut": 1,
        "b/mean": 2.0,
        "b/transformed/mean": 1.5,
        "b/transformed/max": 2.0,
        "b/outcomes/not_applicable": 1,
        "c/mean": 1.5,
        "c/outcomes/not_applicable": 2,
        "total/mean": np.mean([0.0, 2.5, 1.5, 2.0]),
    }
    assert {name: metrics[f"rewards/{name}"] for name in expected} == expected
    assert not metrics.keys() & {"rewards/a/gate_shut", "rewards/a/transformed/mean"}


def test_a_group_is_dead_if_no_completion_of_it_has_an_advantage() -> None:
    mixture = mixture_of("a", "b", a=1.0, b=0.5)
    rows = [{"a": 0.0, "b": 2.0}, {"a": 1.0, "b": 0.0}]  # totals tie, and the standardised components do not
    scores = mixture.score([Sample("x", columns=row) for row in rows])
    for scaling, dead in (("group", 1.0), ("component", 0.0)):
        advantages = mixture.advantages(scores, 2, scaling)
        metrics = summarise(scores, mixture.totals(scores), advantages, num_generations=2, weights=mixture.weights(1))
        assert metrics["rewards/dead_groups"] == dead


def test_totals_cover_scored_completions_and_components_all_that_have_a_value() -> None:
    metrics = metrics_of(mixture_of("a", "b", b=2.0), ROWS, 2, histogram_bins=4, detailed=True)
    assert metrics["rewards/total/mean"] == np.mean([2.0, 3.0, 7.0])
    assert metrics["rewards/total/variance"] == pytest.approx(np.var([2.0, 3.0, 7.0]))
    assert metrics["rewards/a/mean"] == pytest.approx(2 / 3)
    assert (metrics["rewards/b/mean"], metrics["rewards/b/max"], metrics["rewards/b/weight"]) == (2.5, 5.0, 2.0)
    assert metrics["rewards/b/histogram"] == {"counts": [2, 0, 1, 1], "edges": [1.0, 2.0, 3.0, 4.0, 5.0]}


def test_each_outcome_is_counted() -> None:
    metrics = metrics_of(mixture_of("a"), [{"a": 1.0}, {"a": None}, {"a": math.inf}, {"a": 0.0}], 2)
    counts = {outcome.value: metrics[f"rewards/outcomes/{outcome}"] for outcome in Outcome}
    assert counts == {"scored": 2, "not_applicable": 1, "bad_reference": 0, "error": 1, "timeout": 0}


def test_nothing_scored_gives_null_and_never_zero() -> None:
    metrics = metrics_of(mixture_of("a"), [{"a": math.nan}, {"a": math.nan}], 2, detailed=True)
    for leaf in NUMBERS | DETAIL:
        assert metrics[f"rewards/total/{leaf}"] is None
        assert metrics[f"rewards/a/{leaf}"] is None
    assert metrics["rewards/outcomes/error"] == 2
    assert metrics["rewards/dead_groups"] == 1.0


def test_on_failure_zero_does_not_pass_failures_off_as_scores() -> None:
    mixture = Mixture(mixture_of("a").components, on_failure="zero")
    metrics = metrics_of(mixture, [{"a": 1.0}, {"a": math.nan}], 2)
    assert metrics["rewards/total/mean"] == 1.0
    assert metrics["rewards/outcomes/error"] == 1


def test_equal_rewards_have_no_deviation_at_all() -> None:
    metrics = metrics_of(mixture_of("a"), [{"a": 0.1}] * 6, 3)
    assert (metrics["rewards/total/mean"], metrics["rewards/total/std"], metrics["advantages/std"]) == (0.1, 0.0, 0.0)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32) | st.none(), min_size=2, max_size=8))
def test_metrics_are_json_without_nan(values: list[float | None]) -> None:
    rows = [{"a": value} for value in values[: len(values) // 2 * 2]]
    metrics = metrics_of(mixture_of("a"), rows, 2, detailed=True, samples=[Sample("x")] * len(rows))
    json.dumps(metrics, allow_nan=False)
