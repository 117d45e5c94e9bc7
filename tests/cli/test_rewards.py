"""`agent-tunix rewards …`: output and exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_tunix.cli import main
from agent_tunix.rewards import registry

CHEATABLE = '''\
def reward(response, answer):
    """The answer is there. Range [0, 1]."""
    return 1.0 if answer in response else 0.0


reward.kind = "correctness"
'''


def run(*arguments: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "agent_tunix", "rewards", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"})


BAD = """\
import os


def loops(response, answer):
    while True:
        pass


def dies(response, answer):
    os._exit(3)


def dies_on_boxes(response, answer):
    if "boxed" in response:
        os._exit(3)
    return 1.0


def by_process(response):
    return float(os.getpid() == int(os.environ["COMMAND_PROCESS"]))


def messages(completions, **kwargs):
    return [float(isinstance(completion, list)) for completion in completions]


async def graded(args, sample, **kwargs):
    return {"score": 1.0 if sample.label in sample.response else 0.0, "length": len(sample.response)}
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "cheatable.py").write_text(CHEATABLE)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "rows.jsonl").write_text(
        "".join(
            json.dumps({"question": f"What is {n} and {n}?", "answer": f"{n}+{n}={2 * n}\n#### {2 * n}"}) + "\n"
            for n in range(11, 23)
        )
    )
    (tmp_path / "cases.yaml").write_text(
        'reward: math\ncases:\n- {name: four, response: "4", answer: 4, expected: 1}\n'
        '- {name: five, response: "5", answer: 4, expected: 0}\n'
    )
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["rewards", *arguments])


# --- exit status -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["try", "math", "--response", "4", "--answer", "many"], 1),
        (["try", "mth", "--response", "4"], 2),
        (["check", "format", "--rows", "4", "--tries", "20"], 0),
    ],
)
def test_a_program_ends_with_its_status(arguments: list[str], status: int, directory: Path) -> None:
    result = run(*arguments, directory=directory)
    assert result.returncode == status, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert bool(result.stderr) == (status == 2)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["list"], 0),
        (["show", "math"], 0),
        (["try", "math", "--response", "4", "--answer", "4"], 0),
        (["test", "cases.yaml"], 0),
        (["check", "cheatable.py:reward", "--data", "rows.jsonl", "--tries", "20"], 1),
        (["calibrate", "check_answer", "check_numbers", "--rows", "2"], 0),
    ],
)
def test_a_command_ends_with_its_status(arguments: list[str], status: int, directory: Path) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stderr) == (status, "")
    assert "Exit status: 0" in call(arguments[0], "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--module", "missing.py"], "UnknownRewardError: there is no file"),
        (["show", "mth"], "did you mean 'math'?"),
        (["show", "[math"], "is not YAML"),
        (["try", "math", "--response", "4"], "requires the parameter `answer`"),
        (["try", "math", "--response", "4"], "--answer TEXT"),
        (["try", "math", "--response", "4", "--column", "x"], "--column must have the form NAME=VALUE"),
        (["test", "none.yaml"], "cannot be read"),
        (["test", "cases.yaml", "--tolerance", "x"], "'x' is not a valid float"),
        (["check", "math", "--data", "none.jsonl"], "there is no file none.jsonl"),
        (["check", "math", "--kind", "politeness"], "'politeness' is not one of"),
        (["calibrate", "math", "mth"], "did you mean 'math'?"),
        (["calibrate", "math", "math", "--completions", "none.jsonl"], "cannot be read"),
        (["check", "citations"], "requires the parameter `sources`"),
    ],
)
def test_a_wrong_argument_is_explained_with_status_2(arguments: list[str], message: str, directory: Path) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_failed_case_ends_with_1_and_shows_the_difference(directory: Path) -> None:
    (directory / "cases.yaml").write_text('[{name: five, response: "5", answer: 4, expected: 1}]')
    result = call("test", "check_numbers", "cases.yaml")
    assert result.exit_code == 1
    assert "- expected 1\n        + got      0\n" in result.stdout


# --- code that hangs or ends its process, and where it runs -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("place", ["auto", "inline"])
def test_an_endless_loop_ends_with_a_timeout(place: str, directory: Path) -> None:
    arguments = ("--response", "4", "--answer", "4", "--timeout", "0.5", "--execution", place, "--json")
    scored = call("try", "bad.py:loops", *arguments)
    assert scored.exit_code == 1
    assert json.loads(scored.stdout)["outcome"] == "timeout"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loops", "dies", "dies_on_boxes"])
def test_a_check_of_a_reward_that_hangs_or_dies_fails(name: str, directory: Path) -> None:
    result = call("check", f"bad.py:{name}", "--timeout", "0.5", "--rows", "4", "--skip", "never raises")
    assert result.exit_code == 1
    assert "failed  never raises  3 responses hung or ended the process" in result.stdout


@pytest.mark.slow
def test_cases_of_a_reward_that_hangs_or_dies(directory: Path) -> None:
    (directory / "cases.yaml").write_text('[{response: "5", answer: "4", expected: timeout}]')
    assert call("test", "bad.py:loops", "cases.yaml", "--timeout", "0.5").exit_code == 0
    result = call("test", "bad.py:dies", "cases.yaml")
    assert result.exit_code == 1
    assert "the worker process exited with status 3" in result.stdout


@pytest.mark.parametrize(("place", "is_here"), [("auto", 0.0), ("process", 0.0), ("inline", 1.0)])
def test_execution_says_where_a_reward_of_your_own_runs(
    place: str, is_here: float, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMAND_PROCESS", str(os.getpid()))
    assert data("try", "bad.py:by_process", "--response", "", "--execution", place)["value"] == is_here


@pytest.mark.slow
def test_a_check_in_workers_finds_what_it_finds_inline(directory: Path) -> None:
    arguments = ("check", "cheatable.py:reward", "--data", "rows.jsonl", "--tries", "60")
    reports = [data(*arguments, "--execution", place) for place in ("process", "inline")]
    for report in reports:  # one finding tells a time
        report["findings"] = [finding for finding in report["findings"] if finding["check"] != "never raises"]
    assert reports[0] == reports[1]


# --- calling conventions ---------------------------------------------------------------------------------------------


def test_a_dict_of_a_miles_function_is_read_by_its_key(directory: Path) -> None:
    arguments = ("try", "bad.py:graded", "--response", "it is 4", "--answer", "4")
    assert call(*arguments).exit_code == 1
    assert data(*arguments, "--reward-key", "score")["value"] == 1.0


@pytest.mark.parametrize(("form", "value"), [("text", 0.0), ("messages", 1.0)])
def test_a_batch_function_gets_completions_in_the_form_asked_for(form: str, value: float, directory: Path) -> None:
    assert data("try", "bad.py:messages", "--response", "4", "--completions", form)["value"] == value


def test_a_convention_can_be_named(directory: Path) -> None:
    (directory / "unclear.py").write_text("def f(*args, **kwargs):\n    return [1.0]\n")
    assert call("try", "unclear.py:f", "--response", "4").exit_code == 2
    assert data("try", "unclear.py:f", "--response", "4", "--convention", "trl")["value"] == 1.0


# --- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_heavy_library_is_loaded(directory: Path) -> None:
    program = (
        "import sys\nfrom agent_tunix.cli import main\n"
        "def run(*arguments, unloaded):\n"
        "    try:\n        main(['rewards', *arguments])\n"
        "    except SystemExit:\n        pass\n"
        "    assert not set(unloaded.split()) & set(sys.modules), arguments\n"
        "run('list', unloaded='jax hydra omegaconf yaml agent_tunix.data agent_tunix.config')\n"
        "run('try', 'math', '--response', '4', '--answer', '4', unloaded='jax hydra omegaconf agent_tunix.data')\n"
        "run('check', 'math', '--rows', '2', '--tries', '5', unloaded='jax flax hydra omegaconf transformers')\n"
        "run('calibrate', 'math', 'format', '--rows', '2', unloaded='jax flax hydra omegaconf transformers')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=directory, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


# --- output ---------------------------------------------------------------------------------------------------------


def data(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    return json.loads(result.stdout)


def test_the_list_has_built_ins_and_the_users_own(directory: Path) -> None:
    (directory / "custom_rewards.py").write_text(
        "from agent_tunix.rewards import register_reward_function\n\n"
        '@register_reward_function("polite_words")\ndef f(response):\n'
        '    """Says please. Range [0, 1]."""\n    return 0.0\n'
    )
    (directory / "conf" / "reward").mkdir(parents=True)
    (directory / "conf" / "reward" / "mine.yaml").write_text("components: {a: math}\n")
    entries = {entry["name"]: entry for entry in data("list")}
    assert entries["math"]["kind"] == "correctness"
    assert entries["polite_words"] == {
        "name": "polite_words",
        "kind": "unknown",
        "range": [0.0, 1.0],
        "summary": "Says please",
    }
    assert entries["mine"]["summary"] == "a file of conf/reward"


def test_show_tells_what_each_parameter_receives(directory: Path) -> None:
    shown = data("show", "conciseness", "--arg", "limit=50")
    (component,) = shown["components"]
    assert component["parameters"] == {
        "response": "the completion's text",
        "answer": "the column `answer`, the stripped reference",
        "limit": "50, as set",
    }
    assert component["example"].startswith(">>>")
    assert "length.py" in component["source"]
    assert shown["fingerprint"]


def test_show_prints_every_component_of_a_mixture_and_the_settings_of_a_judge(directory: Path) -> None:
    text = call("show", "{correct: math, tags: {function: format, weight: 0.2}}").stdout
    assert "range        0 to 1.2" in text
    assert "tags, weight 0.2" in text
    judge = call("show", "judge").stdout
    assert "requests_per_minute:" in judge
    assert "polarity:" in judge


def test_try_explains_a_score_component_by_component(directory: Path) -> None:
    spec = "{correct: math, tags: {function: format, weight: 0.2}}"
    text = call("try", spec, "--response", "<answer>4</answer>", "--answer", "4").stdout
    assert text.startswith("correct+tags: 1.05\n  correct: 1 × 1 = 1\n")
    assert "  tags: 0.2 × 0.25 = 0.05\n    2 of 4 tags" in text


def test_try_gives_columns_prompt_and_step_and_reads_standard_input(directory: Path) -> None:
    (directory / "reads.py").write_text(
        "def f(response, prompt, sizes, step):\n    return len(prompt) + sum(sizes) + step\n"
    )
    scored = data("try", "reads.py:f", "--response", "", "--prompt", "ab", "--column", "sizes=[1, 2]", "--step", "10")
    assert scored["value"] == 15.0
    result = CliRunner().invoke(main, ["rewards", "try", "math", "--response", "-", "--answer", "4"], input="it is 4")
    assert result.stdout.startswith("math: 1\n")


def test_the_form_of_completions_is_tried_outside_the_worker_that_scores(directory: Path) -> None:
    (directory / "counting.py").write_text(
        "calls = []\n\n\ndef f(completions):\n    calls.append(1)\n    return [float(len(calls))]\n"
    )
    assert data("try", "counting.py:f", "--response", "4")["value"] == 1.0
    (directory / "counted.yaml").write_text("reward: counting.py:f\ncases:\n- {response: '4', expected: 1}\n")
    assert call("test", "counted.yaml").exit_code == 0


def test_an_argument_must_name_its_component_where_there_are_several(directory: Path) -> None:
    spec = "{short: conciseness, correct: math}"
    arguments = ("try", spec, "--response", "It is 4", "--answer", "4", "--arg")
    assert call(*arguments, "limit=6").exit_code == 2
    assert call(*arguments, "short.limit=6").stdout.startswith("short+correct: 1.85\n")


@pytest.mark.slow
def test_a_check_prints_the_best_exploit_that_it_found(directory: Path) -> None:
    text = call("check", "cheatable.py:reward", "--data", "rows.jsonl", "--tries", "100").stdout
    assert "failed  every answer listed" in text
    assert "failed  exploit search" in text
    assert "built of:" in text
    assert text.splitlines()[-1].startswith("reward failed")


@pytest.mark.slow
def test_a_check_takes_columns_by_other_names(directory: Path) -> None:
    (directory / "other.jsonl").write_text('{"task": "1 and 1?", "gold": "2"}\n{"task": "2 and 2?", "gold": "4"}\n')
    arguments = ("check", "math", "--data", "other.jsonl", "--tries", "5")
    assert call(*arguments).exit_code == 2
    assert data(*arguments, "--prompt-column", "task", "--answer-column", "gold")["problems"] == 2


def test_a_check_takes_rows_without_references(directory: Path) -> None:
    (directory / "words.jsonl").write_text('{"prompt": "Two words?", "words": 2}\n{"prompt": "Three?", "words": 3}\n')
    (directory / "words.py").write_text("def f(response, words):\n    return float(len(response.split()) == words)\n")
    report = data("check", "words.py:f", "--data", "words.jsonl", "--tries", "0", "--kind", "correctness")
    assert {"gold solution": "skipped"}.items() <= {one["check"]: one["status"] for one in report["findings"]}.items()


def test_a_check_tries_the_completions_of_a_file(directory: Path) -> None:
    (directory / "said.jsonl").write_text('{"response": "sure"}\n{"response": "4"}\n{"response": "sure"}\n')
    (directory / "polite.py").write_text(
        "def f(response, answer):\n    return 1.0 if response == answer else 0.9 * (response == 'sure')\n"
    )
    arguments = ("check", "polite.py:f", "--data", "rows.jsonl", "--kind", "correctness", "--tries", "0")
    report = call(*arguments, "--rollouts", "said.jsonl")
    assert report.exit_code == 1
    assert "failed  frequent completions" in report.stdout
    assert call(*arguments, "--rollouts", "missing.jsonl").exit_code == 2


def test_calibration_reads_completions_with_labels(directory: Path) -> None:
    rows = [{"response": "It is 4", "answer": "#### 4", "label": True}, {"response": "5", "answer": 4, "label": False}]
    (directory / "completions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = data("calibrate", "math", "check_answer", "--completions", "completions.jsonl")
    assert report["truth"] == "labels"
    assert [misses["not_read"]["hits"] for misses in report["misses"]] == [0, 1]
    assert len(report["disagreements"]) == 1


def test_an_unusable_completion_is_refused_with_its_line(directory: Path) -> None:
    for line in ("{", "[]", '{"response": 4, "answer": "4"}', '{"response": "4"}'):
        (directory / "completions.jsonl").write_text(f"\n{line}\n")
        result = call("calibrate", "math", "math", "--completions", "completions.jsonl")
        assert result.exit_code == 2
        assert "line 2" in result.stderr
