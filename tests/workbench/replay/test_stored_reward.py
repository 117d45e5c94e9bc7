"""The component or total that a changed function is compared with."""

from typing import Any

import pytest

from agent_tunix.workbench.replay import Unreplayable, choose_counterpart
from tests.raising import raises
from tests.service.replay_support import saved

OTHER = {"function": "agent_tunix.rewards.builtin.correctness.math_reward", "source": "0" * 16, "files": {"a": "b"}}
THIS_SOURCE = {"function": "politeness.reward", "source": saved().sha256[:16], "files": {}}
THIS_SOURCE_RENAMED = {**THIS_SOURCE, "function": "courtesy.reward"}
OTHER_VERSION = {"function": "politeness.reward", "source": "1" * 16, "files": {}}
OWN_FILE = {"function": "politeness.reward", "source": "2" * 16, "files": {"politeness.py": "3"}}


@pytest.mark.parametrize(
    ("components", "kind", "name", "reason"),
    [
        ({"a": OTHER, "b": OTHER_VERSION, "c": THIS_SOURCE}, "component", "c", "this source"),
        ({"politeness": OTHER, "b": THIS_SOURCE_RENAMED}, "component", "b", "this source"),
        ({"politeness": OTHER, "b": OTHER_VERSION}, "component", "b", "another version"),
        ({"a": OWN_FILE, "politeness": OTHER}, "component", "politeness", "the function's name"),
        ({"a": OWN_FILE, "b": OTHER}, "total", "politeness", "no component"),
        ({}, "total", "politeness", "no component"),
    ],
)
def test_the_closest_component_is_the_counterpart(
    components: dict[str, Any], kind: str, name: str, reason: str
) -> None:
    found = choose_counterpart(components, saved())
    assert (found.kind, found.name) == (kind, name)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("asked", "kind", "name"),
    [("a", "component", "a"), ("total", "total", "politeness"), ("saved", "saved", "politeness")],
)
def test_a_counterpart_can_be_asked_for(asked: str, kind: str, name: str) -> None:
    found = choose_counterpart({"a": OTHER, "b": THIS_SOURCE}, saved(), asked)
    assert (found.kind, found.name) == (kind, name)
    assert choose_counterpart({asked: OTHER}, saved(), asked).kind == "component"


def test_an_unknown_component_is_refused_with_the_known_ones() -> None:
    with raises(Unreplayable, "invalid_mixture") as caught:
        choose_counterpart({"a": OTHER, "b": OTHER}, saved(), "x")
    assert "a, b" in str(caught.value)
