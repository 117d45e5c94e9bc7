"""A run that ends early by a metric, and the best checkpoint that it keeps."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.training.checkpoint_evaluation import evaluate_checkpoint
from agent_tunix.training.checkpoints import Checkpoints
from agent_tunix.training.evaluation_request import read_request
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from agent_tunix.training.trained_policy import find_run, load_trained_policy
from agent_tunix.training.verification import first_difference, read_rows
from tests.small_run import SMALL_RUN

# The distance from the reference policy is 0 before the first update and grows from then on: the first step is best.
OVERRIDES = [
    *SMALL_RUN,
    "stopping.metric=policy/kl",
    "stopping.mode=min",
    "stopping.patience=2",
    "training.eval_every_n_steps=1",
    "training.save_interval_steps=0",
    "training.max_checkpoints_to_keep=1",
    "tracking.progress=none",
]


@pytest.fixture(scope="module")
def config() -> Config:
    return compose_overrides(OVERRIDES)


@pytest.fixture(scope="module")
def ended(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ended") / "run"
    train(preflight(config, root.parent), root)
    return root


def steps_of(root: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (root / "metrics.jsonl").read_text().splitlines()]


def test_the_run_ends_when_patience_has_run_out_and_says_why(ended: Path) -> None:
    assert steps_of(ended) == [0, 1, 2, 3]
    log = (ended / "train.log").read_text()
    assert "the run ends early, after step 3 of 4: policy/kl has been no better than" in log


def test_the_best_checkpoint_is_kept_beside_the_last(ended: Path) -> None:
    checkpoints = Checkpoints(ended / "checkpoints", 1)
    assert checkpoints.best_step() == 1
    assert checkpoints.steps() == [1, 3]


def test_the_best_checkpoint_can_be_evaluated(ended: Path) -> None:
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(ended), step="best")))
    assert (ended / "evaluation_step_1_greedy.json").is_file()


def resumed(config: Config, root: Path, **stopping: Any) -> Path:
    changed = dataclasses.replace(
        config,
        training=dataclasses.replace(config.training, resume=True),
        stopping=dataclasses.replace(config.stopping, **stopping),
    )
    train(preflight(changed, root.parent), root)
    return root


def test_a_run_that_ended_early_has_nothing_to_resume(ended: Path, config: Config, tmp_path: Path) -> None:
    shutil.copytree(ended, tmp_path / "run")
    assert steps_of(resumed(config, tmp_path / "run")) == [0, 1, 2, 3]


def test_more_patience_goes_on_from_there(ended: Path, config: Config, tmp_path: Path) -> None:
    shutil.copytree(ended, tmp_path / "run")
    assert steps_of(resumed(config, tmp_path / "run", patience=3)) == [0, 1, 2, 3, 4]


def test_a_resumed_run_ends_where_an_unbroken_one_does(ended: Path, config: Config, tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(ended, root)
    shutil.rmtree(root / "checkpoints" / "step_000003")
    assert first_difference(read_rows(ended), read_rows(resumed(config, root))) is None
    assert Checkpoints(root / "checkpoints", 1).steps() == [1, 3]


def test_a_metric_that_is_none_ends_the_run_at_its_first_row(config: Config, tmp_path: Path) -> None:
    wrong = dataclasses.replace(config, stopping=dataclasses.replace(config.stopping, metric="eval/acuracy"))
    with pytest.raises(ConfigError, match="did you mean eval/accuracy"):
        train(preflight(wrong, tmp_path), tmp_path / "run")


@pytest.mark.parametrize("step", ["last", -1, 1.5, True])
def test_a_step_that_is_none_is_refused(step: object, ended: Path) -> None:
    with pytest.raises(ConfigError, match="step must be the step of a checkpoint, 0, best or null"):
        read_request(EvaluateConfig(checkpoint_dir=str(ended), step=step))


def test_without_a_best_checkpoint_its_evaluation_is_refused(ended: Path, tmp_path: Path) -> None:
    shutil.copytree(ended, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "best.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no best checkpoint.*there are \[1, 3\]"):
        load_trained_policy(dataclasses.replace(find_run(ended), checkpoints=tmp_path / "run" / "checkpoints"), "best")
