"""Reward files as people publish them train, three steps each, without an edit."""

from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from tests.small_run import NUM_STEPS
from tests.training.support import Bench, BenchMaker, small_run

GALLERY = Path(__file__).parents[1] / "rewards" / "gallery"
FILES = sorted(file for file in GALLERY.glob("*/*.py") if file.parent.name != "__pycache__")
ONE_EACH = {file.parent.name: file for file in FILES}


def configuration(file: Path) -> Config:
    config = small_run("rewards.max_failure_rate=0.0")
    config.training.reward_function = f"{file}:reward"
    return config


@pytest.fixture(scope="module")
def bench(make_bench: BenchMaker) -> Bench:
    return make_bench()


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_it_trains_three_steps(file: Path, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = preflight(configuration(file), tmp_path)
    monkeypatch.setattr(bench.learner.reward_manager, "mixture", checked.mixture)
    monkeypatch.setattr(bench.config.rewards, "max_failure_rate", 0.0)
    bench.reset()
    for step in (1, 2, 3):
        result = bench.run_step(step)
        assert result.finite
        assert all(score.value is not None or score.outcome == "not_applicable" for score in result.scores)


@pytest.mark.parametrize("convention", ONE_EACH)
def test_one_of_each_convention_makes_a_whole_run(convention: str, tmp_path: Path) -> None:
    config = configuration(ONE_EACH[convention])
    config.training.save_interval_steps = 0
    config.training.eval_every_n_steps = 0
    train(preflight(config, tmp_path), tmp_path / "run")
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert sum('"rewards/total/mean"' in row for row in rows) == NUM_STEPS
