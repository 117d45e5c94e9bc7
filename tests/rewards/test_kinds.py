from typing import Any

import pytest

from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.builtin import BUILTINS, Kind
from agent_tunix.rewards.kinds import kind_of, range_in_run, range_of, summary_of


def undeclared(response: str) -> float:
    """Manners."""
    return 0.0


def from_docstring(response: str) -> float:
    """Penalises length. Range [−1.5, 0].

    Nothing else.
    """
    return 0.0


@pytest.mark.parametrize("name", BUILTINS)
def test_a_built_in_has_the_kind_and_range_of_its_entry(name: str) -> None:
    mixture = resolve_reward(name)
    assert kind_of(mixture) is BUILTINS[name].kind
    assert range_of(mixture) == (BUILTINS[name].low, BUILTINS[name].high)


def by_attributes(response: str) -> float:
    """Politeness."""
    return 0.0


by_attributes.kind = "quality"  # type: ignore[attr-defined]
by_attributes.range = (0, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("function", "kind", "span", "summary"),
    [
        (undeclared, None, None, "Manners"),
        (from_docstring, None, (-1.5, 0.0), "Penalises length"),  # the range is left out of the summary
        (by_attributes, Kind.QUALITY, (0.0, 2.0), "Politeness"),
    ],
)
def test_a_function_declares_kind_and_range(function: Any, kind: Kind | None, span: object, summary: str) -> None:
    mixture = resolve_reward(function)
    assert (kind_of(mixture), range_of(mixture)) == (kind, span)
    assert summary_of(mixture.components[0].reward) == summary


@pytest.mark.parametrize(
    ("components", "kind", "span"),
    [
        ({"a": "math", "b": {"function": "format", "weight": -0.5}}, Kind.COMPOSITE, (-0.5, 1.0)),
        ({"a": "format", "b": "tag_count"}, Kind.FORM, (0.0, 2.0)),
        ({"a": "format", "b": "response_length"}, None, (0.0, 2.0)),
        ({"a": "math", "b": {"function": "format", "weight": 0.0}}, Kind.CORRECTNESS, (0.0, 1.0)),
        ({"a": "math", "b": undeclared}, Kind.COMPOSITE, None),
        ({"a": "format", "b": {"function": undeclared, "kind": "form"}}, Kind.FORM, None),
        ({"a": {"function": "format", "kind": "correctness"}, "b": undeclared}, Kind.COMPOSITE, None),
        ({"a": "math", "b": {"function": "check_answer", "requires": {"a": 1}}}, Kind.CORRECTNESS, (-1.0, 4.0)),
    ],
)
def test_a_mixture_follows_from_its_weighted_components(
    components: dict[str, Any], kind: Kind | None, span: tuple[float, float] | None
) -> None:
    mixture = resolve_reward(components)
    assert kind_of(mixture) is kind
    assert range_of(mixture) == span


@pytest.mark.parametrize(
    ("weights", "span"),
    [
        ([0.5], (0.0, 0.5)),
        ([{"from": 0.1, "to": 1.0, "steps": [1, 20]}], (0.0, 1.0)),
        ([{"from": 0.0, "to": -0.5, "steps": [3, 8]}], (-0.5, 0.0)),
        ([{"from": 0.0, "to": 1.0, "steps": [1, 5]}, {"from": 1.0, "to": 0.0, "steps": [15, 20]}], (0.0, 2.0)),
        ([{"from": 0.0, "to": 1.0, "steps": [1, 5]}, {"from": 1.0, "to": 0.0, "steps": [1, 5]}], (0.0, 1.0)),
    ],
)
def test_the_range_in_a_run_is_that_of_all_steps(weights: list[Any], span: tuple[float, float]) -> None:
    mixture = resolve_reward({f"math{n}": {"function": "math", "weight": one} for n, one in enumerate(weights)})
    assert range_in_run(mixture) == span


def test_the_range_in_a_run_is_unknown_if_it_is_at_some_step() -> None:
    weight = {"from": 0.0, "to": 1.0, "steps": [1, 20]}
    assert range_in_run(resolve_reward({"a": {"function": undeclared, "weight": weight}, "b": "math"})) is None
