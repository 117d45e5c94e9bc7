import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.advantages import SCALINGS
from agent_tunix.rewards.mixture.routes import Route
from agent_tunix.rewards.mixture.schedules import Schedule
from agent_tunix.rewards.sample import Reward
from agent_tunix.rewards.transforms import Clip, Map
from tests.raising import raises
from tests.rewards.support import by_column, component, one

FAILED = [Outcome.ERROR, Outcome.TIMEOUT, Outcome.BAD_REFERENCE]


def samples(*rows: dict[str, Any], group_size: int = 2) -> list[Sample]:
    return [Sample("x", columns=row, group_id=index // group_size) for index, row in enumerate(rows)]


def values(scores: Sequence[Score]) -> list[float | None]:
    return [score.value for score in scores]


def test_components_are_kept_raw_and_unscaled() -> None:
    (score,) = Mixture([by_column("a", 2.0), by_column("b", 0.0)]).score(samples({"a": 1.0, "b": 3.0}))
    assert (score.value, score.outcome) == (2.0, Outcome.SCORED)
    assert score.components == {"a": 1.0, "b": 3.0}
    assert {name: part.outcome for name, part in score.parts.items()} == {"a": Outcome.SCORED, "b": Outcome.SCORED}


def test_weight_zero_is_tracked_and_never_trains() -> None:
    mixture = Mixture([by_column("a"), by_column("oracle", 0.0)])
    rows = samples({"a": 1.0, "oracle": 1e11}, {"a": 2.0, "oracle": math.nan}, {"a": 3.0, "oracle": None})
    scores = mixture.score(rows)
    assert values(scores) == [1.0, 2.0, 3.0]
    assert [score.components["oracle"] for score in scores] == [1e11, None, None]
    assert scores[1].parts["oracle"].outcome is Outcome.ERROR


@pytest.mark.parametrize("outcome", FAILED)
def test_a_failed_weighted_component_leaves_the_completion_unscored_and_is_named(outcome: Outcome) -> None:
    mixture = Mixture([by_column("a"), by_column("b", 0.1)])
    first, second = mixture.score(samples({"a": 1.0, "b": Score.failed(outcome, "why")}, {"a": 1.0, "b": 1.0}))
    assert (first.value, first.outcome, first.detail) == (None, outcome, "component 'b': why")
    assert first.components == {"a": 1.0, "b": None}
    assert second.value == pytest.approx(1.1)


def test_a_completion_to_which_no_component_applies_is_not_applicable() -> None:
    mixture = Mixture([by_column("a"), by_column("tracked", 0.0)])
    first, second = mixture.score(samples({"a": None, "tracked": 1.0}, {"a": 1.0, "tracked": 1.0}))
    assert first.outcome is Outcome.NOT_APPLICABLE
    assert second.value == 1.0


def test_groups_are_told_by_their_id_wherever_their_members_stand() -> None:
    mixture = Mixture([by_column("a"), by_column("b")])
    rows = [
        Sample("x", columns={"a": 0.0, "b": value}, group_id=group) for group, value in [(7, 1.0), (3, 9.0), (7, None)]
    ]
    assert values(mixture.score(rows)) == [1.0, 9.0, 1.0]


def test_a_total_beyond_all_sense_is_an_error() -> None:
    (score,) = Mixture([by_column("a", 10.0)]).score(samples({"a": 1e12}))
    assert score.outcome is Outcome.ERROR
    assert "at most 1e+12" in score.detail


def test_the_detail_shows_how_a_total_came_about() -> None:
    said = component("a", lambda response: Score(1.0, detail="because", extras={"shown": 1}))
    first, second = Mixture([said, by_column("b", 0.2)]).score(samples({"b": 3.0}, {"b": None}))
    assert first.detail == "1 × a 1 [because] + 0.2 × b 3"
    assert "b 3 (not applicable: the group's mean)" in second.detail
    (alone,) = Mixture([said]).score(samples({}))
    assert alone.detail == "because"
    assert first.extras == alone.extras == {"a": {"shown": 1}}


def test_a_mixture_is_itself_a_reward() -> None:
    inner = Mixture([by_column("a", 2.0)])
    assert isinstance(inner, Reward)
    (score,) = Mixture([Component("inner", inner, 0.5)]).score(samples({"a": 1.0}))
    assert score.value == 1.0
    assert inner.score([]) == []


def test_on_failure_zero_counts_a_failure_as_zero_and_still_tells_its_outcome() -> None:
    mixture = Mixture([by_column("a")], on_failure="zero")
    scores = mixture.score(samples({"a": 1.0}, {"a": math.nan}, {"a": None}))
    np.testing.assert_array_equal(mixture.totals(scores), [1.0, 0.0, np.nan])
    assert [score.outcome for score in scores] == [Outcome.SCORED, Outcome.ERROR, Outcome.NOT_APPLICABLE]


def test_on_failure_raise_raises_with_the_reason() -> None:
    mixture = Mixture([by_column("a")], on_failure="raise")
    with raises(RewardError, "unscored_completion", "component 'a': returned nan"):
        mixture.score(samples({"a": 1.0}, {"a": math.nan}))
    assert values(mixture.score(samples({"a": None}))) == [None]


@pytest.mark.parametrize(
    ("components", "on_failure", "code"),
    [
        ([], "exclude", "invalid_mixture"),
        ([by_column("a", 0.0)], "exclude", "invalid_mixture"),
        ([by_column("a"), by_column("a")], "exclude", "invalid_mixture"),
        ([by_column("a")], "ignore", "invalid_config"),
    ],
)
def test_a_mixture_that_could_not_train_is_refused(components: list[Component], on_failure: str, code: str) -> None:
    with raises(RewardError, code):
        Mixture(components, on_failure=on_failure)


def counting(seen: list[str]) -> Callable[..., Any]:
    def reward(response: str, metadata: dict[str, Any]) -> float:
        seen.append(metadata["id"])
        return 5.0

    return reward


def test_a_gated_component_is_computed_only_where_its_gate_is_open() -> None:
    seen: list[str] = []
    mixture = Mixture([component("b", counting(seen), requires={"a": 1.0}), by_column("a")])
    scores = mixture.score(samples({"id": "low", "a": 0.99}, {"id": "at", "a": 1.0}, {"id": "above", "a": 7.0}))
    assert seen == ["at", "above"]
    assert values(scores) == [0.99, 6.0, 12.0]
    assert [score.terms["b"].gate_shut for score in scores] == [True, False, False]
    assert [score.components["b"] for score in scores] == [None, 5.0, 5.0]
    assert "b" not in scores[0].parts
    assert scores[0].detail == "1 × b 0 (gate shut: a 0.99 < 1) + 1 × a 0.99"


def test_a_shut_gate_is_a_score_of_zero_and_not_a_missing_one() -> None:
    mixture = Mixture([by_column("a", 0.0), one("b", requires={"a": 1.0})])
    scores = mixture.score(samples({"a": 0.0}, {"a": 1.0}))
    np.testing.assert_allclose(mixture.advantages(scores, 2), [-(0.5**0.5), 0.5**0.5], rtol=1e-5)


def test_a_gate_whose_component_failed_leaves_the_completion_unscored_even_if_that_one_is_only_tracked() -> None:
    mixture = Mixture([by_column("a", 0.0), one("b", requires={"a": 1.0})])
    first, second = mixture.score(samples({"a": math.nan}, {"a": 1.0}))
    assert (first.value, first.outcome) == (None, Outcome.ERROR)
    assert first.detail.startswith("component 'b': its gate requires 'a': returned nan")
    assert second.value == 1.0


def test_a_route_keeps_a_component_from_other_rows() -> None:
    seen: list[str] = []
    mixture = Mixture(
        [
            component("sums", counting(seen), route=Route({"kind": ("math",)})),
            component("verse", lambda response: 2.0, route=Route({"kind": ("poem",)})),
        ]
    )
    rows = [{"id": "1", "kind": "math"}, {"id": "2", "kind": "poem"}, {"id": "3", "kind": "prose"}]
    scores = mixture.score(samples(*rows, group_size=1))
    assert seen == ["1"]
    assert values(scores) == [5.0, 2.0, None]
    assert scores[2].outcome is Outcome.NOT_APPLICABLE
    assert scores[1].terms["sums"].detail == "it applies to rows with kind = math, but this one has 'poem'"


def test_a_gated_component_does_not_apply_to_rows_that_its_requirement_skips() -> None:
    mixture = Mixture(
        [
            one("always"),
            component("sums", lambda response: 0.0, route=Route({"kind": ("math",)})),
            one("brief", requires={"sums": 1.0}),
        ]
    )
    math_row, poem_row = mixture.score(samples({"kind": "math"}, {"kind": "poem"}, group_size=1))
    assert (math_row.value, poem_row.value) == (1.0, 1.0)
    assert math_row.terms["brief"].gate_shut
    assert poem_row.terms["brief"].outcome is Outcome.NOT_APPLICABLE
    assert not poem_row.terms["brief"].gate_shut


def test_a_column_that_the_dataset_lacks_is_refused() -> None:
    mixture = Mixture([one("a", route=Route({"kind": ("math",)})), component("b", lambda response, level: 0.0)])
    mixture.check_parameters(["kind", "level"])
    with raises(RewardError, "invalid_mixture", "'kind', which the dataset lacks; it has: answer, level"):
        mixture.check_parameters(["answer", "level"])
    with pytest.raises(RewardSignatureError, match="level"):
        mixture.check_parameters(["kind"])


def test_cheap_components_are_computed_first_and_requirements_before_what_asks_for_them() -> None:
    order: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def reward(response: str) -> float:
            order.append(name)
            return 1.0

        return reward

    mixture = Mixture(
        [
            component("judge", noting("judge"), cost=9.0, requires={"cheap": 1.0}),
            component("dear", noting("dear"), cost=5.0),
            component("cheap", noting("cheap"), cost=7.0),
            component("free", noting("free"), requires={"dear": 1.0}),
        ]
    )
    (score,) = mixture.score(samples({}))
    assert order == ["dear", "cheap", "free", "judge"]
    assert list(score.terms) == ["judge", "dear", "cheap", "free"]


class Elsewhere:
    """A reward that scores elsewhere, and notes when it is asked and when it is waited for."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        self.notes.append(f"{self.name} begins with {len(samples)}")
        future: Future[list[Score]] = Future()
        future.set_result([Score(1.0)] * len(samples))
        return future

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        raise AssertionError("it would be waited for")

    def check_parameters(self, columns: Collection[str]) -> None: ...

    def describe(self) -> str:
        return self.name


def test_what_scores_elsewhere_begins_before_what_scores_here() -> None:
    notes: list[str] = []

    def here(response: str, metadata: dict[str, Any]) -> float:
        notes.append("here")
        return float(metadata["a"])

    mixture = Mixture(
        [
            component("here", here),
            Component("far", Elsewhere("far", notes)),
            Component("gated", Elsewhere("gated", notes), requires={"here": 1.0}),
        ]
    )
    assert values(mixture.score(samples({"a": 0.0}, {"a": 1.0}))) == [1.0, 3.0]
    assert notes == ["far begins with 2", "here", "here", "gated begins with 1"]


def test_the_transformed_value_is_weighed_and_the_raw_one_is_kept() -> None:
    mixture = Mixture([by_column("a", weight=2.0, transforms=(Clip(0.0, 1.0),))])
    first, second = mixture.score(samples({"a": 7.0}, {"a": 0.5}))
    assert (first.value, first.components, first.terms["a"].value) == (2.0, {"a": 7.0}, 1.0)
    assert first.detail == "2 × a 7 → 1"
    assert second.detail == "2 × a 0.5"


def test_a_value_that_a_map_does_not_hold_is_an_error_that_names_it() -> None:
    mixture = Mixture([by_column("a", transforms=(Map({0.0: -1.0}),))])
    first, second = mixture.score(samples({"a": 0.0}, {"a": 0.7}))
    assert first.value == -1.0
    assert (second.outcome, second.detail) == (Outcome.ERROR, "component 'a': its transform has no value for 0.7")
    assert second.components == {"a": 0.7}


def test_the_weight_of_the_step_is_the_one_used() -> None:
    mixture = Mixture([one("a", weight=Schedule(0.0, 2.0, (0.0, 10.0)))])
    assert [mixture.score([Sample("x", step=step)])[0].value for step in (0, 5, 99)] == [0.0, 1.0, 2.0]


def test_at_a_step_where_all_weights_are_zero_totals_are_zero_and_nothing_fails() -> None:
    mixture = Mixture([component("a", lambda response: math.nan, weight=Schedule(0.0, 1.0, (5.0, 6.0)))])
    early, late = (mixture.score([Sample("x", step=step)])[0] for step in (5, 6))
    assert (early.value, late.value) == (0.0, None)


def test_on_failure_zero_counts_as_zero_in_every_component() -> None:
    mixture = Mixture([by_column("a"), by_column("b")], on_failure="zero")
    failed = mixture.score(samples({"a": 1.0, "b": math.nan}, {"a": 3.0, "b": 4.0}))
    zeros = mixture.score(samples({"a": 0.0, "b": 0.0}, {"a": 3.0, "b": 4.0}))
    for scaling in SCALINGS:
        np.testing.assert_array_equal(mixture.advantages(failed, 2, scaling), mixture.advantages(zeros, 2, scaling))
