"""The reward as the configuration has it, and what is begun for it early."""

from pathlib import Path

import pytest

from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.answers.verifiers import Verifiers
from agent_tunix.runs import reward_setup
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
