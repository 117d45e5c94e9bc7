"""The best step so far by a metric, the end of patience, and runs that end early."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import EvaluateConfig, StoppingConfig
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.early_stopping import BestSoFar
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.training.verification import first_difference, read_rows
from tests.raising import raises
from tests.training.support import copy_run, train_run


def observed(values: list[Any], every: int = 1, **settings: Any) -> BestSoFar:
    best = BestSoFar(StoppingConfig(metric="eval/accuracy", **settings))
    for step, value in enumerate(values):
        best.observe(step, {"eval/accuracy": value}, judged=step % every == 0)
    return best


@pytest.mark.parametrize(
    ("values", "settings", "step", "waited"),
    [
        ([0.1, 0.5, 0.4, 0.5], {}, 1, 2),
        ([0.5, 0.1, 0.4], {"mode": "min"}, 1, 1),
        ([0.5, 0.51, 0.53], {"min_delta": 0.02}, 2, 0),
        ([0.5, 0.4, 0.4], {"patience": 3}, 0, 2),
        ([0.5] + [0.0] * 50, {}, 0, 50),
        ([0.5, None, None, None], {"patience": 1}, 0, 0),  # an unknown value is no judgement
    ],
)
def test_the_best_step_is_kept(values: list[Any], settings: dict[str, Any], step: int, waited: int) -> None:
    best = observed(values, **settings)
    assert (best.step, best.value, best.waited, best.reason_to_stop) == (step, values[step], waited, None)


def test_the_run_may_end_when_patience_has_run_out() -> None:
    reason = observed([0.5, 0.4, 0.4, 0.4], patience=3).reason_to_stop
    assert reason == (
        "eval/accuracy has not improved on 0.5, the value of step 0, for 3 evaluations (stopping.patience=3)"
    )


def test_a_metric_of_every_step_is_judged_by_its_mean_since_it_was_judged_last() -> None:
    best = observed([0.0, 1.0, 0.0, 0.4, 0.6], every=2)
    assert (best.step, best.value) == (2, 0.5)
    assert best.last_step == 4


def test_a_metric_that_no_row_has_is_refused_with_the_nearest() -> None:
    best = BestSoFar(StoppingConfig(metric="rewards/orcale/mean"))
    best.observe(0, {"eval/accuracy": 0.1}, judged=True)
    with raises(ConfigError, "unknown_metric", "did you mean rewards/oracle/mean"):
        best.observe(1, {"rewards/oracle/mean": 0.1, "policy/kl": 0.0}, judged=False)


def test_without_a_metric_nothing_is_judged() -> None:
    assert not BestSoFar(StoppingConfig()).observe(1, {}, judged=True)


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


@pytest.mark.slow
def test_the_run_ends_when_patience_has_run_out_and_keeps_the_best_checkpoint_beside_the_last(ended: Path) -> None:
    assert steps_of(ended) == [0, 1, 2, 3]
    assert "the run stops early, after step 3 of 4: policy/kl" in (ended / "train.log").read_text()
    checkpoints = Checkpoints(ended / "checkpoints", 1)
    assert checkpoints.best_step() == 1
    assert checkpoints.steps() == [1, 3]


@pytest.mark.slow
def test_the_best_checkpoint_can_be_evaluated(ended: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "found.json")
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(ended), step="best", output=output)))
    assert json.loads((tmp_path / "found.json").read_text())["step"] == 1


@pytest.mark.slow
def test_a_resumed_run_ends_where_an_unbroken_one_does(ended: Path, tmp_path: Path) -> None:
    root = copy_run(ended, tmp_path / "run", without=3)
    found = train_run(root, *OVERRIDES, "training.resume=true")
    assert first_difference(read_rows(ended), found) is None
    assert Checkpoints(root / "checkpoints", 1).steps() == [1, 3]


@pytest.mark.slow
def test_a_run_resumed_with_other_judged_steps_goes_on_and_its_best_checkpoint_exists(
    ended: Path, tmp_path: Path
) -> None:
    """Step 2 is then the best of the judged ones, and has none."""
    root = copy_run(ended, tmp_path / "run")
    train_run(root, *OVERRIDES, "training.resume=true", "training.eval_every_n_steps=2")
    assert steps_of(root) == [0, 1, 2, 3, 4]
    checkpoints = Checkpoints(root / "checkpoints", 1)
    assert checkpoints.best_step() in checkpoints.steps()


@pytest.mark.slow
def test_without_a_best_checkpoint_its_evaluation_is_refused(finished: Path) -> None:
    with raises(CheckpointError, "no_checkpoint", "[2, 4]"):
        load_trained_policy(find_run(finished), "best")
