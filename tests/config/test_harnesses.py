"""The key `evaluation.harness`."""

import sys
from pathlib import Path

import pytest
from tests.raising import raises

from agent_tunix.config.harnesses import HarnessTask, harness_tasks
from agent_tunix.config.schema import EvaluationConfig
from agent_tunix.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        (None, []),
        ("lm_eval:gsm8k", [HarnessTask("lm_eval", "gsm8k")]),
        (
            ["lm_eval:my/task.yaml --num_fewshot 5", "inspect:tasks.py@rows -T 'path=a b'"],
            [
                HarnessTask("lm_eval", "my/task.yaml", ("--num_fewshot", "5")),
                HarnessTask("inspect", "tasks.py@rows", ("-T", "path=a b")),
            ],
        ),
    ],
)
def test_a_task_is_a_program_its_task_and_options(given: object, tasks: list[HarnessTask]) -> None:
    assert harness_tasks(EvaluationConfig(harness=given)) == tasks


@pytest.mark.parametrize(
    "given", ["gsm8k", "helm:gsm8k", "lm_eval:", "lm_eval:gsm8k 'open", "", 3, [None], ["lm_eval:a", "lm_eval:a --x"]]
)
def test_other_texts_and_equal_tasks_are_refused(given: object) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.harness must"):
        harness_tasks(EvaluationConfig(harness=given))


def test_a_program_that_is_not_installed_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with raises(ConfigError, "missing_package", "pip install", "agent_tunix[harness]", "inspect_ai"):
        HarnessTask("inspect", "rows").find_program()


def test_a_harness_without_the_packages_of_a_server_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with raises(ConfigError, "missing_package", "fastapi cannot be imported", "agent_tunix[service]"):
        HarnessTask("inspect", "rows").find_program()
