"""A converted reward scores what the given one scores."""

from pathlib import Path

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import resolve_reward
from agent_tunix.workbench.converting import convert_reward
from tests.raising import raises
from tests.rewards.gallery.test_libraries import CASES, FILES, identify, spec_of

GROUPS = {"verl/in_batches", "slime/ranked", "verifiers/group", "trl/token_budget"}
CONVERTED = [file for file in FILES if identify(file) not in GROUPS]


@pytest.mark.parametrize("file", CONVERTED, ids=identify)
def test_a_converted_reward_scores_the_same(file: Path, tmp_path: Path) -> None:
    spec, target = spec_of(file), tmp_path / "mine.py"
    given = resolve_reward(spec)
    target.write_text(convert_reward(given, spec, target, {}))
    converted = resolve_reward("mine.py:" + given.components[0].name, working_directory=tmp_path)
    assert converted.components[0].reward.convention == "plain"  # type: ignore[attr-defined]
    cases = [case for case in CASES if case.ended]
    assert [one.value for one in converted.score(cases)] == [one.value for one in given.score(cases)]


def test_the_function_of_a_group_is_refused() -> None:
    file = next(file for file in FILES if identify(file) == "verifiers/group")
    with raises(RewardError, "invalid_reward"):
        convert_reward(resolve_reward(spec_of(file)), spec_of(file), Path("mine.py"), {})


def test_a_built_in_is_refused() -> None:
    with raises(RewardError, "invalid_reward"):
        convert_reward(resolve_reward("math"), "math", Path("mine.py"), {})
