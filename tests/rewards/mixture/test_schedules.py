import math

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards.mixture.schedules import Schedule, may_train, read_weight, weight_at
from tests.raising import raises

OVER_STEPS = {"from": 0.0, "to": -0.5, "steps": [100, 300]}


@pytest.mark.parametrize(
    ("written", "by_step"),
    [
        (0.2, {0: 0.2, 500: 0.2}),
        (OVER_STEPS, {0: 0.0, 1: 0.0, 100: 0.0, 150: -0.125, 200: -0.25, 300: -0.5, 999: -0.5}),
        (OVER_STEPS | {"kind": "cosine"}, {100: 0.0, 150: -0.25 * (1 - math.sqrt(0.5)), 200: -0.25, 300: -0.5}),
        ({"from": 0.5, "to": 1, "steps": 10, "kind": "step"}, {0: 0.5, 9: 0.5, 10: 1.0, 11: 1.0}),
        ({"from": 0.5, "to": 1, "steps": [10], "kind": "step"}, {9: 0.5, 10: 1.0}),
    ],
)
def test_a_weight_over_steps(written: object, by_step: dict[int, float]) -> None:
    weight = read_weight("a", written)
    assert {step: weight_at(weight, step) for step in by_step} == pytest.approx(by_step, abs=1e-12)


def test_bounds_give_exactly_the_two_values() -> None:
    weight = read_weight("a", {"from": 0.1, "to": 0.3, "steps": [3, 7]})
    assert (weight_at(weight, 3), weight_at(weight, 7)) == (0.1, 0.3)


@pytest.mark.parametrize("written", [OVER_STEPS, {"from": 0, "to": 1, "steps": 3, "kind": "step"}])
def test_what_a_schedule_says_of_itself_can_be_written(written: dict[str, object]) -> None:
    weight = read_weight("a", written)
    assert isinstance(weight, Schedule)
    assert read_weight("a", weight.to_data()) == weight


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (0.0, False),
        (-0.1, True),
        (Schedule(0.0, 0.0, (1.0, 2.0)), False),
        (Schedule(0.0, 1.0, (1.0, 2.0)), True),
        (Schedule(1.0, 0.0, (1.0, 2.0)), True),
    ],
)
def test_a_weight_that_is_always_zero_trains_nothing(weight: float | Schedule, expected: bool) -> None:
    assert may_train(weight) is expected


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"from": 0.0, "to": 1.0}, "steps must be two numbers, not None"),
        ({"from": 0.0, "to": 1.0, "steps": [300, 100]}, "steps must be two rising numbers"),
        ({"from": 0.0, "to": 1.0, "steps": [5, 5]}, "steps must be two rising numbers"),
        ({"from": 0.0, "to": 1.0, "steps": [1, 2, 3]}, "steps must be two rising numbers"),
        ({"from": 0.0, "to": 1.0, "steps": [1, "2"]}, "steps must be two numbers"),
        ({"from": 0.0, "steps": [1, 2]}, "to must be a finite number, not None"),
        ({"from": math.inf, "to": 1.0, "steps": [1, 2]}, "from must be a finite number, not inf"),
        ({"from": 0.0, "to": 1.0, "steps": [1, 2], "kind": "cubic"}, "kind must be one of linear, cosine, step"),
        ({"from": 0.0, "to": 1.0, "steps": [1, 2], "kind": "step"}, "the one number at which the weight changes"),
        ({"from": 0.0, "to": 1.0, "steps": [1, 2], "until": 3}, "a schedule has no key 'until'"),
        ({"from": 0.0, "to": 1.0, "values": [1, 2]}, "a schedule has no key 'values'"),
        (True, "must be a number or a schedule, not True"),
        ([0.0, 1.0], "must be a number or a schedule"),
    ],
)
def test_a_malformed_schedule_is_refused_with_its_form(written: object, told: str) -> None:
    with raises(RewardError, "invalid_mixture") as caught:
        read_weight("a", written)
    assert "the weight of component 'a'" in str(caught.value)
    assert told in str(caught.value)
