"""Whole runs on episodes: user's code in workers, replay, a kill, evaluation, trust."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import RewardFailureRateError, UntrustedRunError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.rewards import Outcome
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.training.verification import first_rollout_difference
from tests.environments.support import GALLERY
from tests.environments.test_gallery import CASES
from tests.raising import raises
from tests.training.episodes import EPISODES, WORLD
from tests.training.support import copy_run, train_run

pytestmark = pytest.mark.slow


def train(root: Path, *overrides: str) -> list[dict[str, Any]]:
    (root.parent / "world.py").write_text(WORLD)
    return train_run(root, *EPISODES, f"environment.name={root.parent / 'world.py'}:Counter", *overrides)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("episodes") / "run"
    train(root)
    return root


def rows_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


def test_turns_calls_and_failures_are_counted(run: Path) -> None:
    before, *rows = rows_of(run)
    assert before["eval/turns/mean"] >= 1
    assert any(row["environment/errors"] for row in rows)
    for row in rows:
        assert row["turns/mean"] >= 1
        assert row["rewards/outcomes/error"] == row["environment/errors"]
        assert sum(value for name, value in row.items() if name.startswith("stop_reasons/")) == pytest.approx(1.0)


def test_a_step_without_a_turn_stops_the_run_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "shut.py").write_text("class Shut:\n    def reset(self, **row):\n        raise OSError('shut')\n")
    with raises(RewardFailureRateError, "reward_failure_rate"):
        train(tmp_path / "run", f"environment.name={tmp_path / 'shut.py'}:Shut", "rewards.max_failure_rate=0.5")


def test_stored_episodes_are_those_that_trained_and_score_again(run: Path) -> None:
    steps = list(RolloutReader(run / "rollouts").iterate())
    pairs = [pair for step in steps for pair in zip(step.samples, step.scores, strict=True)]
    for sample, score in pairs:
        assert sample.episode is not None
        assert sample.messages[sample.episode.num_prompt_messages]["role"] == "assistant"
        assert "You may ask." in sample.messages[sample.episode.num_prompt_messages - 1]["content"]
        assert (score.outcome is Outcome.ERROR) == bool(sample.fault)
        pairs_of_tokens = zip(sample.episode.tokens, sample.episode.loss_mask, strict=True)
        assert tuple(token for token, is_written in pairs_of_tokens if is_written) == sample.tokens
        assert sample.fault or sample.episode.state["limit"] in (0, 1)
        if sample.episode.score is not None and score.value is not None:
            assert score.components["environment"] == sample.episode.score.value
    failed = [bool(sample.fault) for sample, _ in pairs]
    assert any(failed)
    assert not np.concatenate([step.advantages for step in steps])[failed].any()


def test_a_resumed_run_equals_an_unbroken_one_whatever_the_tools_take(run: Path, tmp_path: Path) -> None:
    killed = copy_run(run, tmp_path / "run", without=4)
    found = train(killed, "training.resume=true", f"environment.name={run.parent / 'world.py'}:Counter")
    expected = [
        {name: value for name, value in row.items() if not name.startswith(("time/", "throughput/"))}
        for row in rows_of(run)
    ]
    assert found == expected
    assert first_rollout_difference(run, killed) is None


def test_an_evaluation_acts_in_the_environments(run: Path, tmp_path: Path) -> None:
    asked = EvaluateConfig(checkpoint_dir=str(run), num_samples=4, output=str(tmp_path / "found.json"))
    evaluate_checkpoint(read_request(asked))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["eval/turns/mean"] >= 1


def test_the_environment_of_a_stranger_needs_trust(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    with pytest.raises(UntrustedRunError) as refused:
        read_request(EvaluateConfig(checkpoint_dir=str(run), num_samples=4))
    assert "world.py" in str(refused.value)
    read_request(EvaluateConfig(checkpoint_dir=str(run), num_samples=4, trust=True))


def test_environments_of_every_form_train_unedited_in_one_run(tmp_path: Path) -> None:
    """One of each form; tests/environments/test_gallery.py and test_mcp.py run the others."""
    names = {case.place.rpartition(":")[2].lower(): case for case in CASES[::5]}
    lines = [
        json.dumps({"question": "Begin.", **case.row, **case.args, "environment": name}) for name, case in names.items()
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    rows = train_run(
        tmp_path / "run",
        "environment=calculator",
        "environment.tools=[]",
        "environment.max_turns=3",
        "environment.max_episode_tokens=64",
        f"environment.name={{{', '.join(f'{name}: {GALLERY / case.place}' for name, case in names.items())}}}",
        f"environment.mcp=[{{command: python {GALLERY}/mcp/dice.py}}]",
        "data=word_problems",
        f"data.path={tmp_path / 'rows.jsonl'}",
        f"training.test_data_dir={tmp_path / 'rows.jsonl'}",
        "data.answer_column=null",
        "generation.max_prompt_length=1024",
        f"training.batch_size={len(names)}",
        "training.num_batches=1",
        "grpo.num_generations=2",
        "evaluation.num_samples=0",
        "training.reward_function=response_length",
    )
    assert [row["environment/errors"] for row in rows] == [0]
    steps = list(RolloutReader(tmp_path / "run" / "rollouts").iterate())
    samples = [sample for step in steps for sample in step.samples if sample.episode]
    assert {sample.columns["environment"] for sample in samples} == set(names)
