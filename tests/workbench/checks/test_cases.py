import json
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome
from agent_tunix.workbench.checks import Case, load_cases, run_cases
from tests.raising import raises

YAML = """\
reward: math
tolerance: 0.01
cases:
  - {name: right, response: "<answer>4</answer>", answer: 4, expected: 1}
  - {name: near, response: "39", answer: "40", expected: 0.505}
  - {name: strict, response: "39", answer: "40", expected: 0.505, tolerance: 0.001}
  - {name: unusable, response: "4", answer: many, expected: bad_reference}
  - {response: "-2", answer: "2", expected: 0, reward: check_numbers}
"""


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_yaml_table_runs_with_its_own_reward_and_tolerance(tmp_path: Path) -> None:
    report = run_cases(write(tmp_path, "cases.yaml", YAML))
    assert [str(result.case) for result in report.failures] == ["strict"]
    assert not report.passed
    assert report.text.endswith("4 of 5 cases passed")


def test_a_failure_shows_what_was_expected_what_came_and_why(tmp_path: Path) -> None:
    (failure,) = run_cases(write(tmp_path, "cases.yaml", YAML)).failures
    *lines, detail = failure.text.splitlines()
    assert lines == [
        "FAILED  strict",
        "        - expected 0.505 ± 0.001",
        "        + got      0.5",
        "        response   '39'",
        "        answer     '40'",
    ]
    assert detail.startswith("        detail     the answer '39' is different from '40'")


def test_a_jsonl_and_a_csv_table_mean_the_same(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"name": "a, b", "response": "say 4", "answer": "4", "expected": 1},
        {"name": "none", "response": "", "answer": "4", "expected": None},
        {"name": "bad", "response": "4", "answer": "", "expected": "bad_reference"},
    ]
    jsonl = write(tmp_path, "cases.jsonl", "\n".join(map(json.dumps, entries)))
    csv = write(
        tmp_path, "cases.csv", 'name,response,answer,expected\n"a, b",say 4,4,1\nnone,,4,null\nbad,4,,bad_reference\n'
    )
    assert load_cases(jsonl) == load_cases(csv)
    (unusual,) = load_cases(write(tmp_path, "unusual.csv", "response,answer,expected\nfour\u2028is 4,4,1\n"))
    assert unusual.response == "four\u2028is 4"
    assert [case.expected for case in load_cases(csv)] == [1.0, None, Outcome.BAD_REFERENCE]


def test_a_cell_that_holds_a_json_list_or_object_is_one(tmp_path: Path) -> None:
    header = "response,answer,expected,words,unit,range,broken\n"
    row = '"[1, 2]","[1, 2]",1,"[""a"", ""b""]","{""name"": ""m""}","[1, 2)",[\n'
    (case,) = load_cases(write(tmp_path, "cases.csv", header + row))
    assert (case.response, case.columns) == (
        "[1, 2]",
        {"answer": "[1, 2]", "words": ["a", "b"], "unit": {"name": "m"}, "range": "[1, 2)", "broken": "["},
    )


def test_null_expects_a_reward_that_does_not_apply() -> None:
    def silent(response: str) -> float | None:
        return None if response == "" else 0.0

    assert run_cases([Case("a", "", None), Case("b", "x", 0.0)], silent).passed
    assert not run_cases([Case("a", "", 0.0)], silent).passed
    assert not run_cases([Case("b", "x", None)], silent).passed


def test_an_error_can_be_expected() -> None:
    def breaks(response: str) -> float:
        raise ValueError(response)

    assert run_cases([Case("a", "", Outcome.ERROR)], breaks).passed


def test_a_case_gives_columns_prompt_step_and_format() -> None:
    def reads(response: str, prompt: str, unit: str, step: int, format: str) -> float:
        return float((prompt, unit, step, format) == ("How far?", "km", 7, "{answer}"))

    case = Case("a", "", 1.0, columns={"unit": "km"}, prompt="How far?", step=7, format="{answer}")
    assert run_cases([case], reads).passed


def test_a_column_that_a_case_lacks_fails_that_case_alone() -> None:
    lacking, whole = run_cases([Case("a", "4", 1.0), Case("b", "4", 1.0, columns={"answer": "4"})], "math").results
    assert not lacking.passed
    assert "answer" in lacking.text
    assert whole.passed


def test_a_case_needs_a_reward() -> None:
    with raises(RewardError, "invalid_cases"):
        run_cases([Case("a", "4", 1.0)])


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("cases.yaml", "[]", "invalid_cases"),
        ("cases.yaml", "a: 1", "invalid_cases"),
        ("cases.yaml", "reward: math\nrows: 1\ncases: [{response: a, expected: 1}]", "invalid_reward"),
        ("cases.yaml", "- {response: a}", "invalid_reward"),
        ("cases.yaml", "- {response: 4, expected: 1}", "invalid_cases"),
        ("cases.yaml", "- {response: a, expected: high}", "invalid_cases"),
        ("cases.yaml", "- {response: a, expected: true}", "invalid_cases"),
        ("cases.yaml", "- {response: a, answer: yes, expected: 1}", "invalid_cases"),
        ("cases.yaml", "- {response: a, expected: 1, tolerance: -1}", "invalid_cases"),
        ("cases.yaml", "- {response: a, expected: 1, step: soon}", "invalid_cases"),
        ("cases.yaml", "- {response: a, expected: 1, step: .inf}", "invalid_cases"),
        ("cases.yaml", "- [", "invalid_cases"),
        ("cases.yaml", "- 4", "invalid_cases"),
        ("cases.jsonl", "{", "invalid_cases"),
        ("cases.csv", "response,expected\na,b,c\n", "invalid_cases"),
        ("cases.csv", "response,expected\na,\n", "invalid_cases"),
        ("cases.txt", "", "invalid_cases"),
        ("absent.yaml", None, "invalid_cases"),
    ],
)
def test_a_malformed_table_is_refused_with_its_name(tmp_path: Path, name: str, text: str | None, code: str) -> None:
    path = tmp_path / name if text is None else write(tmp_path, name, text)
    with raises(RewardError, code, name):
        load_cases(path)


def test_a_case_is_named_in_a_parametrised_test() -> None:
    assert str(Case("right", "4", 1.0)) == "right"


@pytest.mark.parametrize("written", ["12:30", "010", "2024-01-02", "0x1F", "1_000"])
def test_what_is_no_decimal_number_in_yaml_is_text(written: str, tmp_path: Path) -> None:
    (case,) = load_cases(write(tmp_path, "cases.yaml", f"- {{response: a, answer: {written}, expected: 1}}"))
    assert case.columns["answer"] == written


def test_decimal_numbers_in_yaml_are_numbers(tmp_path: Path) -> None:
    text = "".join(f"- {{response: a, expected: {one}}}\n" for one in ("1", "-0.5", "1e-3", ".5", "1.", "2.0e1"))
    cases = load_cases(write(tmp_path, "cases.yaml", text))
    assert [case.expected for case in cases] == [1.0, -0.5, 0.001, 0.5, 1.0, 20.0]
