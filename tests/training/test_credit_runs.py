"""Runs with credit by turn: what is stored, replayed and shown, and a step without a signal."""

from pathlib import Path

import numpy as np
import pytest

from agent_tunix.runs.stored_rewards import RewardChange, replay_run
from agent_tunix.service.inspector.showing import show
from agent_tunix.tracking.report.writing import write_report
from agent_tunix.tracking.rollouts import RolloutReader, StoredStep
from agent_tunix.tracking.rollouts.pages import RolloutPages
from agent_tunix.tracking.stored_run import StoredRun
from tests.training.support import train_run

pytestmark = pytest.mark.slow

COUNTING = '''
class Counting:
    """Three turns that earn their number of digits, times a scale."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def reset(self):
        self.turn = 0
        return "Count."

    def step(self, action):
        self.turn += 1
        digits = sum(c.isdigit() for c in action)
        return f"turn {self.turn}", self.scale * digits, self.turn == 3, {}
'''
KEYS = ("environment.max_turns=3", "environment.max_turn_tokens=12", "training.reward_function=environment")


def train(root: Path, *overrides: str) -> list[dict[str, float]]:
    (root.parent / "counting.py").write_text(COUNTING)
    return train_run(root, f"environment.name={root.parent / 'counting.py'}:Counting", *KEYS, *overrides)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredRun, list[dict[str, float]]]:
    root = tmp_path_factory.mktemp("credit") / "run"
    rows = train(root, "grpo.credit=gigpo", "grpo.discount=0.9", "tracking.report=false")
    return StoredRun(root), rows


def steps_of(run: StoredRun) -> list[StoredStep]:
    return list(RolloutReader(run.root / "rollouts").iterate())


def test_the_advantages_of_turns_are_stored_and_measured(run: tuple[StoredRun, list[dict[str, float]]]) -> None:
    stored, rows = run
    by_step = {row["step"]: row for row in rows if row["step"] > 0}
    for step in steps_of(stored):
        assert step.turn_advantages is not None
        assert step.settings.credit.kind == "gigpo"
        np.testing.assert_allclose(step.advantages, np.nanmean(step.turn_advantages, axis=1), rtol=1e-5, atol=1e-6)
        counts = [max(1, sample.episode.num_turns) for sample in step.samples if sample.episode is not None]
        assert (~np.isnan(step.turn_advantages)).sum(axis=1).tolist() == counts
        known = step.turn_advantages[~np.isnan(step.turn_advantages)]
        assert by_step[step.step]["advantages/std"] == pytest.approx(known.std(), rel=1e-5)
        assert by_step[step.step]["rewards/environment/advantage_share"] == pytest.approx(1.0)


def test_a_replay_equals_the_run_to_the_last_bit_and_shows_another_credit(
    run: tuple[StoredRun, list[dict[str, float]]],
) -> None:
    stored, _ = run
    same, _ = replay_run(stored, RewardChange(), trust=True)
    assert same.identical
    other, _ = replay_run(stored, RewardChange(overrides=["grpo.credit=turn", "grpo.discount=0.9"]), trust=True)
    assert other.equal_totals == other.completions
    assert other.equal_advantages < other.completions
    deeper, _ = replay_run(stored, RewardChange(overrides=["grpo.credit=hgpo", "grpo.history_turns=1"]), trust=True)
    assert deeper.equal_totals == deeper.completions


def test_report_and_inspector_show_the_advantage_beside_the_turn(
    run: tuple[StoredRun, list[dict[str, float]]],
) -> None:
    stored, _ = run
    page = write_report(stored, stored.root, config=stored.config).read_text()
    assert "turn_advantages" in page
    row = RolloutPages(stored.root / "rollouts").group(1, 0).rows[0]
    advantages = [turn.advantage for turn, _ in show(row, 1000).turns if turn.role == "assistant"]
    assert advantages == row["turn_advantages"]


def test_a_step_without_a_signal_moves_nothing(tmp_path: Path) -> None:
    rows = train(tmp_path / "run", "grpo.credit=turn", "environment.args={scale: 0.0}")
    trained = [row for row in rows if row["step"] > 0]
    assert {row["rewards/dead_groups"] for row in trained} == {1.0}
    assert {row["policy/updates"] for row in trained} == {0}
