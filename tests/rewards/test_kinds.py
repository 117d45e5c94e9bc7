from typing import Any

import pytest

from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.builtin import BUILTINS, Kind
from agent_tunix.rewards.kinds import kind_of, range_of, summary_of


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


def test_a_function_declares_both_by_attributes() -> None:
    def polite(response: str) -> float:
        return 0.0

    polite.kind = "quality"  # type: ignore[attr-defined]
    polite.range = (0, 2)  # type: ignore[attr-defined]
    assert kind_of(resolve_reward(polite)) is Kind.QUALITY
    assert range_of(resolve_reward(polite)) == (0.0, 2.0)


def test_a_range_is_read_from_a_docstring_and_left_out_of_the_summary() -> None:
    mixture = resolve_reward(from_docstring)
    assert range_of(mixture) == (-1.5, 0.0)
    assert summary_of(mixture.components[0].reward) == "Penalises length"


def test_what_is_not_declared_is_unknown() -> None:
    assert kind_of(resolve_reward(undeclared)) is None
    assert range_of(resolve_reward(undeclared)) is None


@pytest.mark.parametrize(
    ("components", "kind", "span"),
    [
        ({"a": "math", "b": {"function": "format", "weight": -0.5}}, Kind.COMPOSITE, (-0.5, 1.0)),
        ({"a": "format", "b": "tag_count"}, Kind.FORM, (0.0, 2.0)),
        ({"a": "format", "b": "response_length"}, None, (0.0, 2.0)),
        ({"a": "math", "b": {"function": "format", "weight": 0.0}}, Kind.CORRECTNESS, (0.0, 1.0)),
        ({"a": "math", "b": undeclared}, Kind.COMPOSITE, None),
        ({"a": "math", "b": {"function": "check_answer", "requires": {"a": 1}}}, Kind.CORRECTNESS, (-1.0, 4.0)),
    ],
)
def test_a_mixture_follows_from_its_weighted_components(
    components: dict[str, Any], kind: Kind | None, span: tuple[float, float] | None
) -> None:
    mixture = resolve_reward(components)
    assert kind_of(mixture) is kind
    assert range_of(mixture) == span
