"""Runs that sample from processes of their own train as those that sample in this process."""

import dataclasses
from pathlib import Path

import pytest

from agent_tunix.errors import EngineError
from agent_tunix.runs.preflight import preflight
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training import train
from agent_tunix.training.verification import read_rows
from tests.raising import raises
from tests.small_run import NUM_STEPS
from tests.training.ahead_runs import lagging, sampling_here
from tests.training.engine_runs import ENGINE, OVERRIDES, Killer, open_local_engines, rollouts, sampling_processes
from tests.training.support import assert_same_weights, small_run

pytestmark = pytest.mark.slow

ADAPTER = "model.lora_rank=4"


def run(root: Path, *overrides: str, killer: Killer | None = None) -> Path:
    train.train(preflight(small_run(*OVERRIDES, *overrides), root.parent), root, callbacks=[killer] if killer else [])
    assert not sampling_processes(root)
    return root


def sample_greedily(monkeypatch: pytest.MonkeyPatch) -> None:
    of_training = SamplingParams.of_training
    greedy = classmethod(lambda _, config: dataclasses.replace(of_training(config), greedy=True))
    monkeypatch.setattr(SamplingParams, "of_training", greedy)


@pytest.fixture(scope="module")
def adapted_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trains an adapter, with the requests of an engine answered in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "open_engines", open_local_engines)
        return run(tmp_path_factory.mktemp("here") / "run", ADAPTER)


def assert_same_run(expected: Path, found: Path) -> None:
    assert rollouts(found) == rollouts(expected)
    assert_same_weights(expected, found)
    rows = read_rows(found)
    assert [row["step"] for row in rows] == list(range(NUM_STEPS + 1))
    for row, other in zip(rows, read_rows(expected), strict=True):
        assert {name: row[name] for name in other if name.startswith(("rewards/", "eval/", "completions/"))} == {
            name: value for name, value in other.items() if name.startswith(("rewards/", "eval/", "completions/"))
        }
    assert all(row["policy/sampler_mismatch_kl"] < 1e-6 for row in rows[1:])


def test_rewards_and_token_ids_are_those_of_a_run_without_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sample greedily: other programs draw other random numbers."""
    sample_greedily(monkeypatch)
    found = run(tmp_path / "found", *ENGINE, "engine.num_processes=2")
    assert_same_run(run(tmp_path / "expected"), found)


@pytest.mark.parametrize("rank", [0, 4])
def test_steps_are_sampled_ahead_with_the_weights_of_their_versions(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_greedily(monkeypatch)
    overrides = (f"model.lora_rank={rank}", "optimizer.learning_rate=3e-3")
    found = run(tmp_path / "found", *overrides, *ENGINE, "engine.num_processes=1", "engine.max_staleness=1")
    with sampling_here():
        expected = run(tmp_path / "expected", *overrides, *lagging(1))
    assert rollouts(found) == rollouts(expected)
    assert all(row["policy/sampler_mismatch_kl"] > 1e-6 for row in read_rows(found) if row["step"] > 1)


def test_a_run_whose_only_process_is_killed_saves_and_resumes(adapted_here: Path, tmp_path: Path) -> None:
    root = tmp_path / "killed"
    overrides = (ADAPTER, *ENGINE, "engine.num_processes=1")
    with raises(EngineError, "sampling_process_failed", "sampler_0.log"):
        run(root, *overrides, killer=Killer(root, 3, 0.0))
    assert [row["step"] for row in read_rows(root)][-1] == 2
    run(root, *overrides, "training.resume=true")
    assert_same_run(adapted_here, root)
