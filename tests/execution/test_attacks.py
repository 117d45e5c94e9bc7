"""Attacks by model-written programs and by uploads, as root and as an ordinary user: refused, and without effect."""

import json
from functools import cache

import pytest

from agent_tunix.execution.isolation import problems
from tests.execution.attacks import ATTACKS, DOORS, NAMES
from tests.execution.users import run_as, users

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))]


@cache
def results(door: str, user: str, namespaces: str) -> dict[str, tuple[str, list[str]]]:
    """Make every attack; for each what the code said, and what was damaged."""
    printed = run_as(user, "-m", "tests.execution.attacks", door, "{directory}", namespaces)
    return json.loads(printed.splitlines()[-1])  # type: ignore[no-any-return]


# Without namespaces Landlock alone keeps the process from files, which an ordinary user can be sure to have.
# tests/rewards/isolation/test_requirements.py has the other combinations.
PLACES = [("this", "namespaces"), (users()[-1], "no-namespaces")]


@pytest.mark.parametrize(("user", "namespaces"), PLACES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_refused_and_harms_nothing(name: str, door: str, user: str, namespaces: str) -> None:
    said, damage = results(door, user, namespaces)[name]
    assert damage == []
    assert "succeeded" not in said
    assert "PASSED" not in said
    assert "SCORED" not in said
    if name in ATTACKS:
        assert said.startswith("refused: "), said
