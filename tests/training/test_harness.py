"""Evaluation by other programs: what they measure, where they fail, and that training does not notice them."""

import dataclasses
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.harnesses import HarnessTask
from agent_tunix.config.schema import EvaluateConfig
from agent_tunix.data import load_evaluation
from agent_tunix.errors import ConfigError
from agent_tunix.evaluation import harness as harnesses
from agent_tunix.evaluation.checkpoint import run_evaluation
from agent_tunix.evaluation.harness import HarnessEvaluator
from agent_tunix.evaluation.harness_programs import FailedTask, read_figures
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.training.verification import read_rows
from tests.raising import raises
from tests.training import stand_in_harness
from tests.training.support import FINISHED, small_run, train_config, train_run

PREFIX = "eval/lm_eval/"
FIGURES = ("greedy", "greedy_stderr", "sampled/strict", "limit")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a stand-in of `lm_eval`."""
    directory = tmp_path_factory.mktemp("bin")
    path = directory / "lm_eval"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in_harness.__file__} "$@"\n')
    path.chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def _in_path(program: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "real_programs" not in request.node.name:
        monkeypatch.setenv("PATH", f"{program}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def evaluator(sampler: Sampler) -> Any:
    """Return an evaluator of the embedded model by tasks."""

    def make(*tasks: str, **arguments: Any) -> HarnessEvaluator:
        config = small_run()
        config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, harness=list(tasks)))
        return HarnessEvaluator(config, sampler, EMBEDDED_MODEL, **arguments)

    return make


@pytest.mark.slow
def test_a_run_logs_what_a_harness_finds_and_trains_as_without_it(tmp_path: Path, finished: Path) -> None:
    harness = "evaluation.harness=[lm_eval:toy,lm_eval:late]"
    rows = train_run(
        tmp_path / "run", *FINISHED, harness, "evaluation.harness_limit=7", f"stopping.metric={PREFIX}toy/greedy"
    )
    own = [{name: value for name, value in row.items() if not name.startswith(PREFIX)} for row in rows]
    assert own == read_rows(finished)
    found = {row["step"]: {n.removeprefix(PREFIX): v for n, v in row.items() if n.startswith(PREFIX)} for row in rows}
    assert not found[1]
    assert not found[3]
    for step in (0, 2, 4):
        assert found[step]["toy/limit"] == 7.0
        assert found[step]["toy/greedy"] > 0
        assert found[step]["toy/sampled/strict"] > 0
        assert found[step]["toy/greedy_stderr"] is None
        assert list((tmp_path / "run" / "evaluation" / f"step_{step}" / "1_lm_eval_toy").rglob("results_1.json"))
    assert {name: found[0][f"late/{name}"] for name in FIGURES} == {name: found[0][f"toy/{name}"] for name in FIGURES}
    assert found[2]["late/greedy"] is None
    assert found[4]["late/limit"] is None
    assert "no task late" in (tmp_path / "run" / "train.log").read_text()


def test_a_run_that_samples_no_problems_may_still_have_a_harness_but_a_task_must_not_fail_at_its_start(
    tmp_path: Path,
) -> None:
    with raises(ConfigError, "harness_failed") as caught:
        train_run(tmp_path / "run", "evaluation.num_samples=0", "evaluation.harness=lm_eval:broken")
    assert "no task broken" in str(caught.value)


def test_equal_policies_have_equal_figures_also_where_a_harness_gives_no_seed(evaluator: Any, tmp_path: Path) -> None:
    first, second = (evaluator("lm_eval:toy").metrics(tmp_path, required=True) for _ in range(2))
    assert first == second
    assert first[f"{PREFIX}toy/sampled/strict"]


def test_a_run_without_memory_for_requests_is_told_how_to_evaluate(
    evaluator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_tunix.planning.open_mesh.available_memory", lambda _: 10**6)
    with raises(ConfigError, "not_enough_memory", "evaluation.harness: a context", "agent-tunix evaluate"):
        evaluator("lm_eval:toy")


def test_two_tasks_with_one_metric_are_refused(evaluator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harnesses, "read_figures", lambda *_: {"rows/accuracy": 0.5})
    with raises(ConfigError, "harness_failed", "same metric, eval/lm_eval/rows/accuracy"):
        evaluator("lm_eval:broken", "lm_eval:late").metrics(tmp_path, required=True)


def test_only_the_directories_of_tasks_are_replaced(evaluator: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("not of a task")
    for _ in range(2):
        with raises(ConfigError, "harness_failed"):
            evaluator("lm_eval:broken").metrics(tmp_path, required=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1_lm_eval_broken", "mine"]


def test_a_run_that_is_asked_to_stop_ends_a_harness_and_all_that_it_started(evaluator: Any, tmp_path: Path) -> None:
    file = tmp_path / "step_0" / "1_lm_eval_endless" / "child"
    stopped = evaluator("lm_eval:endless", is_stopping=lambda: file.exists() and file.read_text() != "")
    stopped.remember([f"{PREFIX}endless/greedy", "eval/accuracy"])
    assert stopped.metrics(tmp_path / "step_0", required=True) == {f"{PREFIX}endless/greedy": None}
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


def test_a_checkpoint_is_evaluated_by_a_harness(finished: Path, tmp_path: Path) -> None:
    asked = EvaluateConfig(
        checkpoint_dir=str(finished), num_samples=4, harness="lm_eval:toy", output=str(tmp_path / "found.json")
    )
    results = run_evaluation(asked)
    assert results.metrics[f"{PREFIX}toy/greedy"] > 0
    assert list((tmp_path / "found_harness" / "1_lm_eval_toy").rglob("results_1.json"))


INSPECT_LOG = {
    "status": "success",
    "eval": {"task": "rows"},
    "results": {"scores": [{"name": "pattern", "metrics": {"accuracy": {"value": 0.5}, "stderr": {"value": 0.1}}}]},
}


def read_inspect(place: Path, log: object, status: int = 0) -> dict[str, float | None]:
    (place / "log.txt").write_text("the last line")
    (place / "a.json").write_text(json.dumps(log))
    return read_figures(HarnessTask("inspect", "rows"), status, place)


def test_figures_of_inspect_name_the_scorer_only_if_there_are_several(tmp_path: Path) -> None:
    assert read_inspect(tmp_path, INSPECT_LOG) == {"rows/accuracy": 0.5, "rows/stderr": 0.1}
    score = {"name": "match", "reducer": "mean", "metrics": {"accuracy": {"value": 1}}}
    log = {**INSPECT_LOG, "results": {"scores": [score, {**score, "reducer": "max"}]}}
    assert read_inspect(tmp_path, log) == {"rows/match/mean/accuracy": 1.0, "rows/match/max/accuracy": 1.0}


@pytest.mark.parametrize(
    ("log", "status"),
    [
        (INSPECT_LOG, 1),
        ({**INSPECT_LOG, "status": "error", "error": {"message": "the last line"}}, 0),
        ({**INSPECT_LOG, "results": {"scores": []}}, 0),
        ({**INSPECT_LOG, "results": None}, 0),
        ([], 0),
    ],
)
def test_a_task_without_figures_has_failed_and_its_last_lines_are_told(
    tmp_path: Path, log: object, status: int
) -> None:
    with pytest.raises(FailedTask, match="the last line"):
        read_inspect(tmp_path, log, status)


LM_EVAL_TASK = {
    "task": "rows",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["<|im_end|>"], "max_gen_toks": 64, "temperature": 0.0},
    "filter_list": [
        {"name": "answer", "filter": [{"function": "regex", "regex_pattern": r"<answer>\s*(.*?)\s*</answer>"}]},
    ],
    "metric_list": [{"metric": "exact_match"}],
}
INSPECT_TASK = r"""
import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate, system_message


@task
def rows() -> Task:
    system = Path(__file__).with_name("system.txt").read_text()
    lines = map(json.loads, Path(__file__).with_name("rows.jsonl").read_text().splitlines())
    samples = [Sample(input=line["question"], target=line["answer"]) for line in lines]
    scorer = pattern(r"<answer>\s*(.*?)\s*</answer>")
    return Task(dataset=samples, solver=[system_message(system), generate()], scorer=scorer)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("lm_eval") is None or shutil.which("inspect") is None, reason="requires lm_eval[api] and inspect_ai"
)
def test_the_real_programs_find_the_accuracy_of_the_run_s_own_evaluation(tmp_path: Path) -> None:
    shape = ("generation.max_generation_steps=64", "evaluation.num_samples=32", "data.num_test=32")
    config = small_run(*shape)
    rows = [example.columns for example in load_evaluation(config).examples]
    (tmp_path / "system.txt").write_text(str(config.prompt.system))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {**LM_EVAL_TASK, "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}}}
    (tmp_path / "rows.yaml").write_text(json.dumps(task))  # JSON is YAML
    (tmp_path / "rows.py").write_text(INSPECT_TASK)
    system = shlex.quote(str(config.prompt.system))
    tasks = [
        f"lm_eval:{tmp_path}/rows.yaml --system_instruction {system}",
        f"inspect:{tmp_path}/rows.py@rows --temperature 0 --max-tokens 64",
    ]
    config = dataclasses.replace(config, evaluation=dataclasses.replace(config.evaluation, harness=tasks))
    rows_of_run = train_config(config, tmp_path / "run")
    for row in (row for row in rows_of_run if "eval/accuracy" in row):
        assert row["eval/lm_eval/rows/exact_match/answer"] == row["eval/accuracy"]
        assert row["eval/inspect/rows/accuracy"] == row["eval/accuracy"]
    assert rows_of_run[0]["eval/accuracy"] > 0
