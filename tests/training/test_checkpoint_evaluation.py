"""Evaluation of checkpoints: problems as written, other problems and models, another run beside, the reward."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from tests.raising import raises
from tests.training.support import train_run

pytestmark = pytest.mark.slow

PROBLEMS = [("What is 2 plus 2?", "4"), ("What is 3 plus 2?", "5"), ("What is 2 plus 2?", "4")]


def write_problems(path: Path, problems: list[tuple[str, str]]) -> None:
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in problems))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps whose data and model were given by relative paths, and whose reward is a file of its own."""
    directory = tmp_path_factory.mktemp("work")
    (directory / "problems").mkdir()
    write_problems(directory / "problems" / "train.jsonl", PROBLEMS * 6)
    write_problems(directory / "problems" / "test.jsonl", PROBLEMS)
    shutil.copytree(EMBEDDED_MODEL, directory / "model")
    (directory / "own.py").write_text("def length(response):\n    return float(len(response))\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        train_run(
            directory / "run",
            "data.source=jsonl",
            "data.path=problems",
            "model.path=model",
            "training.reward_function={length:{function:own.py:length},form:{function:format,weight:0.5}}",
            "training.save_interval_steps=2",
            "training.eval_every_n_steps=0",
            "rewards.num_workers=1",
        )
    return directory / "run"


def measure(run: Path, output: Path, **asked: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The figures, and the problems."""
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(run), output=str(output), **asked)))
    rows = [json.loads(line) for line in output.with_suffix(".jsonl").read_text().splitlines()]
    return json.loads(output.read_text()), rows


def test_a_run_of_relative_paths_is_evaluated_from_anywhere_with_its_own_reward(run: Path, tmp_path: Path) -> None:
    config = from_yaml(run / "config.yaml")
    assert config.data.path == str(run.parent / "problems")
    assert config.model.path == str(run.parent / "model")
    measured, rows = measure(run, tmp_path / "found.json", with_rewards=True)
    assert measured["eval/num_problems"] == 3
    assert_in_intervals(measured)
    completions = [completion for row in rows for completion in row["completions"]]
    lengths = [len(one["response"]) for one in completions]
    assert measured["eval/rewards/length/mean"] == pytest.approx(sum(lengths) / 3)
    assert measured["eval/rewards/num_unscored"] == 0
    totals = [one["reward"] for one in completions]
    assert measured["eval/rewards/total/mean"] == pytest.approx(sum(totals) / 3)
    if all(one["format"] for one in completions):
        assert totals == pytest.approx([length + 0.5 for length in lengths])


def assert_in_intervals(measured: dict[str, Any], *more: str) -> None:
    """Every share lies in its interval; means of rewards may have one too."""
    intervals = {name.removesuffix("_low") for name in measured if name.endswith("_low")}
    shares = {name for name in intervals if not name.startswith("eval/rewards/")}
    assert shares >= {"eval/accuracy", "eval/partial_accuracy", "eval/format_accuracy", *more}
    for name in shares:
        assert 0 <= measured[f"{name}_low"] <= measured[name] <= measured[f"{name}_high"] <= 1


def test_every_problem_is_written_with_its_completions_and_verdicts(run: Path, tmp_path: Path) -> None:
    measured, rows = measure(run, tmp_path / "new" / "found.json", num_passes=2, inference_config="standard")
    assert [(row["problem"], row["reference"]) for row in rows] == PROBLEMS
    assert_in_intervals(measured, "eval/pass_at_k")
    completions = [completion for row in rows for completion in row["completions"]]
    assert len(completions) == 6
    assert sum(one["correct"] for one in completions) / 6 == pytest.approx(measured["eval/accuracy"])
    assert sum(one["format"] for one in completions) / 6 == pytest.approx(measured["eval/format_accuracy"])
    assert completions[0].keys() >= {"response", "answer", "partial", "outcome", "detail", "num_tokens", "ended"}


def test_a_run_compared_with_itself_does_not_differ(run: Path, tmp_path: Path) -> None:
    measured, _ = measure(run, tmp_path / "found.json", compare_with=str(run), compare_step=4)
    assert measured["compared_with"] == str(run)
    assert measured["compared_step"] == measured["step"] == 4
    assert measured["eval/compared/accuracy"] == measured["eval/accuracy"]
    assert measured["eval/difference/accuracy"] == 0.0
    assert measured["eval/difference/p_value"] == 1.0
    assert measured["eval/difference/num_problems"] == 3


def test_another_checkpoint_answers_the_same_problems(run: Path, tmp_path: Path) -> None:
    write_problems(tmp_path / "test.jsonl", PROBLEMS[1:2] * 4)
    measured, rows = measure(
        run,
        tmp_path / "found.json",
        data={"path": str(tmp_path)},
        compare_with=str(run),
        compare_step=0,
        num_passes=2,
        inference_config="standard",
    )
    assert [row["problem"] for row in rows] == ["What is 3 plus 2?"] * 4
    assert measured["data.path"] == str(tmp_path)
    assert measured["compared_step"] == 0
    assert measured["eval/difference/num_problems"] == 4
    assert measured["eval/difference/p_value"] is None
    expected = measured["eval/accuracy"] - measured["eval/compared/accuracy"]
    assert measured["eval/difference/accuracy"] == pytest.approx(expected)


def test_what_no_problem_could_be_judged_on_is_not_compared(run: Path, tmp_path: Path) -> None:
    write_problems(tmp_path / "test.jsonl", [("What is 2 plus 2?", "?")])
    with raises(DataError, "invalid_request"):
        measure(run, tmp_path / "found.json", data={"path": str(tmp_path)}, compare_with=str(run))


def test_a_model_directory_is_measured_on_problems_of_its_own(tmp_path: Path) -> None:
    write_problems(tmp_path / "test.jsonl", PROBLEMS)
    data = {"source": "jsonl", "path": str(tmp_path)}
    output = tmp_path / "found.json"
    evaluate_checkpoint(
        read_request(EvaluateConfig(model={"path": str(EMBEDDED_MODEL)}, data=data, output=str(output)))
    )
    measured = json.loads(output.read_text())
    assert (measured["eval/num_problems"], measured["model"]) == (3, str(EMBEDDED_MODEL))
    assert output.with_suffix(".jsonl").exists()


@pytest.mark.parametrize(
    ("asked", "code", "fact"),
    [
        ({}, "invalid_request", "model.path=DIR"),
        ({"model": {"path": "x"}, "step": 3}, "invalid_request", "step=3"),
        ({"model": {"path": "x"}, "with_rewards": True}, "invalid_request", "checkpoint_dir=RUN"),
        ({"checkpoint_dir": "RUN", "compare_step": 2}, "invalid_request", "compare_with"),
        ({"checkpoint_dir": "RUN", "compare_with": "/nowhere"}, "invalid_run_config", "compare_with=/nowhere"),
        ({"checkpoint_dir": str(EMBEDDED_MODEL)}, "invalid_run_config", f"set model.path={EMBEDDED_MODEL} in place of"),
        ({"checkpoint_dir": "RUN", "compare_with": "RUN", "compare_step": "last"}, "invalid_request", "compare_step"),
        ({"checkpoint_dir": "RUN", "step": "last"}, "invalid_request", "step"),
        ({"checkpoint_dir": "RUN", "step": -1}, "invalid_request", "-1"),
        ({"checkpoint_dir": "RUN", "step": True}, "invalid_request", "True"),
        ({"checkpoint_dir": "RUN", "data": {"pth": "x"}}, None, "did you mean"),
        ({"checkpoint_dir": "RUN", "data": {"num_test": "many"}}, None, "data.num_test=many: "),
        ({"checkpoint_dir": "RUN", "generation": {"max_prompt_length": 0}}, None, "max_prompt_length"),
        ({"checkpoint_dir": "RUN", "output": "rows.jsonl"}, "invalid_request", "rows.jsonl"),
    ],
)
def test_an_invalid_request_is_refused(asked: dict[str, Any], code: str | None, fact: str, finished: Path) -> None:
    given: dict[str, Any] = {name: str(finished) if value == "RUN" else value for name, value in asked.items()}
    with pytest.raises(ConfigError) as caught:
        read_request(EvaluateConfig(**given))
    assert code in (None, caught.value.code)
    assert fact in str(caught.value)
