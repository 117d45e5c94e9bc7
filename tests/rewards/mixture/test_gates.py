import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards.mixture.gates import order_of, read_requires
from tests.raising import raises


@pytest.mark.parametrize(
    ("requires", "costs", "expected"),
    [
        ({"a": [], "b": [], "c": []}, {}, "abc"),
        ({"a": [], "b": [], "c": []}, {"a": 3, "b": 2}, "cba"),
        ({"a": ["c"], "b": [], "c": []}, {}, "bca"),
        ({"a": ["b"], "b": ["c"], "c": []}, {"c": 9}, "cba"),
        ({"a": ["d"], "b": ["d"], "c": [], "d": ["c"]}, {"a": 1}, "cdba"),
        ({}, {}, ""),
    ],
)
def test_what_is_required_goes_first_and_the_cheapest_of_the_rest(
    requires: dict[str, list[str]], costs: dict[str, float], expected: str
) -> None:
    gates = {name: dict.fromkeys(needed, 1.0) for name, needed in requires.items()}
    assert "".join(order_of(gates, {name: costs.get(name, 0.0) for name in requires})) == expected


@pytest.mark.parametrize(
    ("requires", "circle"),
    [
        ({"a": ["a"]}, "a, a"),
        ({"a": ["b"], "b": ["a"]}, "a, b, a"),
        ({"x": [], "a": ["x", "b"], "b": ["c"], "c": ["b"]}, "b, c, b"),
    ],
)
def test_a_circle_is_refused_and_shown(requires: dict[str, list[str]], circle: str) -> None:
    gates = {name: dict.fromkeys(needed, 1.0) for name, needed in requires.items()}
    with raises(RewardError, "invalid_mixture") as caught:
        order_of(gates, dict.fromkeys(requires, 0.0))
    assert str(caught.value).endswith(f": {circle}")


def test_a_requirement_that_does_not_exist_is_refused() -> None:
    with raises(RewardError, "invalid_mixture") as caught:
        order_of({"a": {"corect": 1.0}, "correct": {}}, {"a": 0.0, "correct": 0.0})
    assert "'a' requires 'corect', which is not a component; the components are: a, correct" in str(caught.value)


@pytest.mark.parametrize("written", ["b", ["b"], {}, {"b": "1"}, {"b": None}, {"b": True}])
def test_a_malformed_requirement_is_refused(written: object) -> None:
    with raises(RewardError, "invalid_mixture"):
        read_requires("a", written)


def test_requirements_are_numbers_by_component() -> None:
    assert read_requires("a", {"b": 1, "c": -0.5}) == {"b": 1.0, "c": -0.5}
    assert read_requires("a", None) == {}
