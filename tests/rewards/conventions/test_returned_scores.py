"""A `Score` that a user's code returns is checked like a number: what is wrong with it is an outcome."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agent_tunix.rewards import Outcome, Score, resolve_reward
from agent_tunix.rewards.conventions import Settings, adapt

from .shapes import ALL, samples

RETURNING = ("plain", "plain_async", "trl", "miles")


@pytest.mark.parametrize(
    "value", [1, True, np.float32(1), np.float64(1), np.int64(1), np.array(1.0), Decimal(1), Fraction(1)]
)
def test_the_value_of_a_score_is_a_float_whatever_it_was_given(value: Any) -> None:
    assert type(Score(value).value) is float
    assert Score(value).value == 1.0


@pytest.mark.parametrize("value", [np.float32("inf"), np.float32("nan"), Decimal("Infinity"), Decimal("NaN"), 10**400])
def test_a_score_is_finite_whatever_its_type(value: Any) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        Score(value)


@pytest.mark.parametrize("value", ["1", b"1", [1.0], object(), 1j])
def test_a_score_of_no_number_says_what_it_takes(value: Any) -> None:
    with pytest.raises(TypeError, match="the value of a score is a number or None, not"):
        Score(value)


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "components of no names": (lambda: Score(1.0, components=[1]), "`components` must be a mapping, not a list"),  # type: ignore[arg-type]
    "component of no number": (lambda: Score(1.0, components={"a": "x"}), "'a' must be a finite number, not a str"),  # type: ignore[dict-item]
    "component nan": (lambda: Score(1.0, components={"a": float("nan")}), "'a' must be a finite number, not nan"),
    "metric of no number": (lambda: Score(1.0, metrics={"m": "x"}), "'m' must be a finite number, not a str"),  # type: ignore[dict-item]
    "extras of no names": (lambda: Score(1.0, extras=3), "`extras` must be a mapping, not an int"),  # type: ignore[arg-type]
    "detail of no text": (lambda: Score(1.0, detail=3), "`detail` must be text, not an int"),  # type: ignore[arg-type]
    "no outcome": (lambda: Score(None, outcome="lost"), "'lost' is not a valid Outcome"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("convention", RETURNING)
def test_a_broken_score_is_an_error_that_names_the_field(convention: str, broken: str) -> None:
    make, message = BROKEN[broken]
    given = ALL[convention](lambda response: make() if response == "b" else Score(1.0))
    first, second = adapt(given, "mine", settings=Settings(completions="text")).score(samples("a", "b"))
    assert (first.value, second.outcome) == (1.0, Outcome.ERROR)
    assert "returned a Score that cannot be used" in second.detail
    assert message in second.detail


def test_a_returned_score_is_totalled_whatever_numbers_it_holds() -> None:
    def reward(response: str) -> Score:
        return Score(Decimal("0.5"), components={"a": Fraction(1, 4), "b": None})  # type: ignore[arg-type,dict-item]

    (score,) = resolve_reward({"mine": {"function": reward, "weight": 2.0}}).score(samples("a"))
    assert score.value == 1.0
    assert score.parts["mine"].components == {"a": 0.25, "b": None}


def test_what_a_score_says_is_kept_and_what_only_a_mixture_says_is_not() -> None:
    def reward(response: str) -> Score:
        return Score(1.0, detail="why", extras={"seen": 1}, metrics={"m": 2}, parts={"x": Score(0.0)}, seconds=99.0)

    (score,) = adapt(reward, "mine").score(samples("a"))
    assert (score.detail, score.extras, score.metrics, score.parts) == ("why", {"seen": 1}, {"m": 2.0}, {})
    assert score.seconds < 99
