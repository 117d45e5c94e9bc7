"""The reward as the configuration has it, and what is begun for it early."""

from pathlib import Path

import pytest

from agent_tunix.config.compose import with_overrides
from agent_tunix.config.schema import Config
from agent_tunix.errors import RewardError
from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.answers.verifiers import Verifiers
from agent_tunix.runs import reward_setup
from tests.raising import raises
from tests.rewards.execution.leftovers import workers_and_descendants


@pytest.fixture
def verifiers(monkeypatch: pytest.MonkeyPatch) -> Verifiers:
    own = Verifiers()
    monkeypatch.setattr(reward_setup, "VERIFIERS", own)
    return own


@pytest.mark.parametrize(
    ("reward", "execution", "begins"),
    [
        ("math", "auto", True),
        ("math", "inline", True),
        ("math", "process", False),
        ("conciseness", "auto", False),
    ],
)
def test_the_process_of_verifiers_is_started_early_where_it_will_be_asked(
    verifiers: Verifiers, reward: str, execution: str, begins: bool
) -> None:
    before = len(workers_and_descendants())
    reward_setup.begin_verifiers(resolve_reward(reward, working_directory=Path.cwd()), execution)
    try:
        assert len(workers_and_descendants()) - before == begins
    finally:
        verifiers.close()


@pytest.mark.parametrize(
    "chosen",
    [
        "training.reward_function=careful_math",
        "training.reward_function={correct: math, brevity: {function: conciseness, args: {limit: 80}, weight: 0.1}}",
    ],
)
def test_a_component_without_a_function_changes_the_one_of_that_name(chosen: str, tmp_path: Path) -> None:
    changes = ["reward.components.brevity.weight=0.9", "reward.components.tags.function=format"]
    config = with_overrides(Config(), [chosen, *changes])
    components = {one.name: one for one in reward_setup.resolve_from_config(config, tmp_path).components}
    assert components["brevity"].weight == 0.9
    assert components["brevity"].reward.args == {"limit": 80}  # type: ignore[attr-defined]
    assert {"correct", "brevity", "tags"} <= components.keys()


def test_a_component_with_a_function_replaces_the_named_mixture(tmp_path: Path) -> None:
    changes = ["training.reward_function=careful_math", "reward.components.tags.function=format"]
    mixture = reward_setup.resolve_from_config(with_overrides(Config(), changes), tmp_path)
    assert [one.name for one in mixture.components] == ["tags"]


def test_a_change_of_a_component_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with raises(RewardError, "missing_function") as caught:
        reward_setup.resolve_from_config(with_overrides(Config(), ["reward.components.brevity.weight=0.9"]), tmp_path)
    assert "math" in str(caught.value)
