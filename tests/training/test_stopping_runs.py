"""A run that ends early by a metric, and the best checkpoint that it keeps."""

import json
from pathlib import Path

import pytest

from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.training.verification import first_difference, read_rows
from tests.raising import raises
from tests.training.support import copy_run, train_run

pytestmark = pytest.mark.slow

# The distance from the reference policy is 0 before the first update and grows from then on: the first step is best.
OVERRIDES = (
    "stopping.metric=policy/kl",
    "stopping.mode=min",
    "stopping.patience=2",
    "training.eval_every_n_steps=1",
    "training.save_interval_steps=0",
    "training.max_checkpoints_to_keep=1",
)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ended") / "run"
    train_run(root, *OVERRIDES)
    return root


def steps_of(root: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (root / "metrics.jsonl").read_text().splitlines()]


def test_the_run_ends_when_patience_has_run_out_and_keeps_the_best_checkpoint_beside_the_last(ended: Path) -> None:
    assert steps_of(ended) == [0, 1, 2, 3]
    assert "the run stops early, after step 3 of 4: policy/kl" in (ended / "train.log").read_text()
    checkpoints = Checkpoints(ended / "checkpoints", 1)
    assert checkpoints.best_step() == 1
    assert checkpoints.steps() == [1, 3]


def test_the_best_checkpoint_can_be_evaluated(ended: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "found.json")
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(ended), step="best", output=output)))
    assert json.loads((tmp_path / "found.json").read_text())["step"] == 1


@pytest.mark.parametrize(("patience", "steps"), [(2, [0, 1, 2, 3]), (3, [0, 1, 2, 3, 4])])
def test_a_run_that_ended_early_goes_on_with_more_patience_only(
    ended: Path, tmp_path: Path, patience: int, steps: list[int]
) -> None:
    root = copy_run(ended, tmp_path / "run")
    train_run(root, *OVERRIDES, "training.resume=true", f"stopping.patience={patience}")
    assert steps_of(root) == steps


def test_a_resumed_run_ends_where_an_unbroken_one_does(ended: Path, tmp_path: Path) -> None:
    root = copy_run(ended, tmp_path / "run", without=3)
    found = train_run(root, *OVERRIDES, "training.resume=true")
    assert first_difference(read_rows(ended), found) is None
    assert Checkpoints(root / "checkpoints", 1).steps() == [1, 3]


def test_an_unknown_metric_ends_the_run_at_its_first_row(tmp_path: Path) -> None:
    with raises(ConfigError, "unknown_metric") as caught:
        train_run(tmp_path / "run", *OVERRIDES, "stopping.metric=eval/acuracy")
    assert "did you mean eval/accuracy" in str(caught.value)


def test_without_a_best_checkpoint_its_evaluation_is_refused(finished: Path) -> None:
    with raises(CheckpointError, "no_best_checkpoint") as caught:
        load_trained_policy(find_run(finished), "best")
    assert "[2, 4]" in str(caught.value)
