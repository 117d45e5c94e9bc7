"""Evaluation by the run's own reward: on data whose references are no mathematics, or where it is asked for."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.config.checks import check
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ConfigError, RewardError, RewardFailureRateError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.evaluate import Evaluator
from agent_tunix.evaluation.request import read_request
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.verification import read_rows
from tests.raising import raises
from tests.training.support import small_run, train_run

REWARD = """
def keywords(response, keywords):
    return sum(word in response for word in keywords) / len(keywords)

def shortness(response):
    return 1 / (1 + len(response))

def fails_outside_training(response, step):
    return 1 / step
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with questions to a support desk and a reward for them."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question": f"Where is {word}?", "answer": f"on the {word} page", "keywords": ["the", "1"]}
        for word in "abcdefgh"
    ]
    Path("rows").mkdir()
    for split in ("train", "test"):
        Path("rows", f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("support.py").write_text(REWARD)
    return tmp_path


OVERRIDES = (
    *("data=gsm8k", "data.path=rows", "training.num_batches=2", "training.eval_every_n_steps=1"),
    *("evaluation.num_samples=4", "reward.components.keywords.function=support.py:keywords"),
    "+reward.components.shortness={function: support.py:shortness, weight: 0.1}",
)


def evaluations(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "eval/num_problems" in row]


@pytest.mark.slow
def test_where_references_are_no_mathematics_the_reward_measures(desk: Path) -> None:
    rows = train_run(desk / "run", *OVERRIDES, "tracking.report=true")
    found = evaluations(rows)
    assert [row["step"] for row in found][:2] == [0, 1]
    for row in found:
        assert row["eval/accuracy"] is None
        assert row["eval/format_accuracy"] is not None
        parts = row["eval/rewards/keywords/mean"], row["eval/rewards/shortness/mean"]
        assert row["eval/rewards/total/mean"] == pytest.approx(parts[0] + 0.1 * parts[1])
        assert row["eval/rewards/total/mean_low"] <= row["eval/rewards/total/mean"]
    table = CliRunner().invoke(main, ["compare", str(desk)])
    assert "eval/rewards/total/mean" in table.output
    assert "eval/accuracy is n/a" in (desk / "run" / "train.log").read_text()
    page = (desk / "run" / "report.html").read_text()
    assert "Held-out reward" in page
    assert "4 completions of 4 problems have no score" in page
    assert measure(desk)["eval/accuracy"] is None
    assert CliRunner().invoke(main, ["export", str(desk / "run"), "--to", str(desk / "model")]).exit_code == 0
    assert "| accuracy | n/a | n/a |" in (desk / "model" / "README.md").read_text()


@pytest.mark.slow
def test_stopping_by_an_accuracy_that_the_references_do_not_give_is_refused(desk: Path) -> None:
    with raises(ConfigError, "unknown_metric"):
        train_run(desk / "run", *OVERRIDES, "stopping.metric=eval/accuracy")
    assert not (desk / "run" / "rollouts").exists()


@pytest.mark.slow
def test_a_reward_that_fails_in_an_evaluation_stops_the_run_where_failures_are_raised(desk: Path) -> None:
    wrong = "+reward.components.wrong.function=support.py:fails_outside_training"
    with pytest.raises(RewardFailureRateError, match="division by zero"):
        train_run(desk / "run", *OVERRIDES, wrong, "rewards.on_failure=raise")


@pytest.mark.slow
def test_the_row_of_a_step_whose_evaluation_failed_is_kept_with_its_checkpoint(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Evaluator.metrics

    def metrics(self: Evaluator, sampler: Any, step: int) -> dict[str, Any]:
        if step == 1:
            raise RewardError("the judge does not answer")
        return measured(self, sampler, step)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "metrics", metrics)
        with pytest.raises(RewardFailureRateError, match="checkpoint of step 1 is saved"):
            train_run(desk / "run", *OVERRIDES)
    assert [row["step"] for row in read_rows(desk / "run")] == [0, 1]
    rows = train_run(desk / "run", *OVERRIDES, "training.resume=true")
    assert [("rewards/total/mean" in row, "eval/num_problems" in row) for row in rows] == [
        (False, True),
        (True, False),
        (True, True),
    ]
    assert "lacks rows" not in (desk / "run" / "train.log").read_text()


@pytest.mark.slow
def test_a_reward_of_ones_own_decides_what_is_correct(desk: Path) -> None:
    asked = ("evaluation.correct=support.py:keywords", "evaluation.correct_at=0.5", "stopping.metric=eval/accuracy")
    rows = evaluations(train_run(desk / "run", *OVERRIDES, *asked, "evaluation.with_rewards=true", "seed=3"))
    for row in rows:
        # `keywords` gives 0, 0.5 or 1, so half of its least correct score is missed only by 0.
        assert row["eval/accuracy"] >= row["eval/rewards/keywords/mean"]
        assert row["eval/partial_accuracy"] == row["eval/accuracy"]
        assert row["eval/num_unscored"] == 0
    assert "eval/accuracy" in CliRunner().invoke(main, ["compare", str(desk)]).output
    measured = measure(desk, correct="support.py:shortness", correct_at=0.001)
    assert measured["eval/accuracy"] == 1.0
    assert measure(desk)["eval/accuracy"] == rows[-1]["eval/accuracy"]
    measured = measure(desk, correct="reward", correct_at=0.05)
    assert measured["eval/rewards/total/mean"] == pytest.approx(rows[-1]["eval/rewards/total/mean"])
    totals = [line["completions"][0] for line in map(json.loads, (desk / "found.jsonl").read_text().splitlines())]
    assert [one["correct"] for one in totals] == [one["reward"] >= 0.05 for one in totals]


def measure(desk: Path, **asked: Any) -> dict[str, Any]:
    """Evaluate the run from its own directory, to which a path of the command line does not refer."""
    output = desk / "found.json"
    with contextlib.chdir(desk):
        request = read_request(EvaluateConfig(checkpoint_dir="run", output=str(output), **asked))
    evaluate_checkpoint(request)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.mark.parametrize(
    ("correct", "code"),
    [("mathh", "unknown_reward"), ("nowhere.py:f", None), ("support.py:nothing", "unknown_reward")],
)
def test_a_measure_that_there_is_not_is_refused_before_training(correct: str, code: str | None, desk: Path) -> None:
    with pytest.raises(RewardError) as caught:
        preflight(small_run(*OVERRIDES, f"evaluation.correct={correct}"), desk)
    assert code in (None, caught.value.code)


def test_a_measure_whose_columns_the_rows_do_not_have_is_refused_before_training(desk: Path) -> None:
    Path("other.py").write_text("def needs(response, department):\n    return 1.0\n")
    with pytest.raises(RewardError, match="department"):
        preflight(small_run(*OVERRIDES, "evaluation.correct=other.py:needs"), desk)


def test_stopping_by_an_evaluation_that_there_is_not_is_refused() -> None:
    with raises(ConfigError, "invalid_config"):
        check(small_run("evaluation.num_samples=0", "stopping.metric=eval/accuracy"))
