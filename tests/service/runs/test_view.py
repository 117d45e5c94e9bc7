import json
import os
from pathlib import Path

import pytest

from agent_tunix.service.runs import metrics
from agent_tunix.service.runs.metrics import MetricsTail
from agent_tunix.service.runs.view import RunView
from agent_tunix.tracking.findings_file import FindingsFile
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after
from agent_tunix.workbench.diagnosis import Finding, Severity
from tests.tracking.report.support import write_run


def _write(path: Path, *steps: int) -> None:
    with MetricsFile(path) as file:
        for step in steps:
            file.write(step, {"a": step / 2})


def _steps(tail: MetricsTail, after: int | None = None, limit: int = 1000) -> list[int]:
    return [row["step"] for row in tail.page(after, limit).rows]


def test_rows_come_as_they_are_added(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail = MetricsTail(path)
    assert _steps(tail) == []
    _write(path, 0, 1, 2)
    assert tail.page().rows == [{"step": step, "a": step / 2} for step in (0, 1, 2)]
    _write(path, 3, 4)
    assert _steps(tail, after=2) == [3, 4]
    assert tail.page().version == tail.page(4).version


def test_pages_hold_every_row_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, *range(10))
    tail = MetricsTail(path)
    first = tail.page(None, 4)
    second = tail.page(first.next, 4)
    third = tail.page(second.next, 4)
    assert [row["step"] for page in (first, second, third) for row in page.rows] == list(range(10))
    assert third.next is None


def test_an_incomplete_last_line_is_read_once_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "a": 1}\n{"step": 2, "a"')
    tail = MetricsTail(path)
    assert _steps(tail) == [1]
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert _steps(tail) == [1, 2]


def test_a_file_that_a_resume_has_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, *range(10))
    tail = MetricsTail(path)
    before = tail.page()
    cut_after(path, 4)
    _write(path, 5)
    after = tail.page()
    assert [row["step"] for row in after.rows] == list(range(6))
    assert after.version != before.version


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1}\n\xff\n[]\n{"step": "x"}\n{"step": -1}\n{"step": 10000000000000000000}\n'
        + b"[" * 99999
        + b'\n{"step": 2, "a": NaN, "b": 1e999}\n'
    )
    page = MetricsTail(path).page()
    assert page.rows == [{"step": 1}, {"step": 2, "a": None, "b": None}]
    assert page.damaged == 6


def test_a_line_that_is_too_long_is_skipped_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, 1)
    tail = MetricsTail(path)
    with path.open("ab") as file:
        file.write(b"x" * (9 * 2**20))
    assert (_steps(tail), tail.page().damaged) == ([1], 0)  # it has not ended yet
    with path.open("ab") as file:
        file.write(b"x" * 2**20 + b"\n")
    _write(path, 2)
    assert (_steps(tail), tail.page().damaged) == ([1, 2], 1)


def test_only_new_rows_are_read_and_evaluations_are_forgotten_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(10):
            file.write(step, {"a": 1.0} | ({"eval/accuracy": step / 10} if step % 5 == 0 else {}))
    tail = MetricsTail(path)
    seen = [{"step": 0, "eval/accuracy": 0.0}, {"step": 5, "eval/accuracy": 0.5}]
    assert tail.evaluations() == seen
    size = path.stat().st_size
    with path.open("r+b") as damaged:  # what was read is not read again
        damaged.write(b"x" * (size - 1))
    with MetricsFile(path) as file:
        file.write(10, {"eval/accuracy": 1.0, "note": "eval/"})
        file.write(11, {"note": "eval/accuracy"})
    assert tail.evaluations() == [*seen, {"step": 10, "eval/accuracy": 1.0}]
    path.unlink()
    assert tail.evaluations() == []


def test_the_first_and_the_last_of_many_evaluations_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_EVALUATIONS", 4)
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(100):
            file.write(step, {"eval/accuracy": 0.5})
    tail = MetricsTail(path)
    assert [row["step"] for row in tail.evaluations()] == [0, 97, 98, 99]
    assert tail.evaluations_left_out() == 96


def test_evaluations_have_a_limit_in_metrics_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_EVALUATION_BYTES", 1000)
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(4):
            file.write(step, {f"eval/{'x' * 400}": 0.5})
        file.write(4, {f"eval/{number}": 0.5 for number in range(5001)})
        file.write(5, {"eval/a": 0.5, "x" * 2**20: 0.5})
    tail = MetricsTail(path)
    assert [row["step"] for row in tail.evaluations()] == [0, 2, 3]
    assert tail.evaluations_left_out() == 3


def test_components_evaluations_and_configuration(tmp_path: Path) -> None:
    write_run(tmp_path / "run", num_steps=6)
    view = RunView("run_", "run", tmp_path / "run")
    assert view.components() == ["brevity", "correct"]
    assert [row["step"] for row in view.evaluations()] == [0, 6]
    assert view.evaluations()[1]["eval/accuracy"] == 0.95
    assert view.config is not None
    assert view.config["grpo"]["loss"] == "grpo"


def test_a_sparse_file_ends_a_look_and_later_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1}\n')
    os.truncate(path, 2**43)
    tail = MetricsTail(path)
    assert _steps(tail) == [1]
    assert tail.page().damaged == 1
    with path.open("ab") as file:
        file.write(b'\n{"step": 2, "a": 1}\n')
    assert _steps(tail) == [1, 2]


def test_a_page_has_at_most_500_findings(tmp_path: Path) -> None:
    finding = json.dumps(Finding("dead_component", next(iter(Severity)), 3, "It is dead.").to_data())
    (tmp_path / "findings.jsonl").write_text("\n" * 2**20 + f"{finding}\n" * 600)
    found, num_left_out = RunView("run_", "run", tmp_path).findings()
    assert (len(found), num_left_out) == (500, 100)


def test_damaged_findings_are_left_out_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "run", num_steps=1)
    path = tmp_path / "run" / "findings.jsonl"
    finding = Finding("dead_component", next(iter(Severity)), 3, "It is dead.", "brevity", {"share": 0.5}, ("3_0_1",))
    with FindingsFile(path, None) as file:
        file.write(finding)
    with path.open("a") as damaged:
        damaged.write("nothing\n" + json.dumps({"step": 4}) + "\n" + '{"name": "half')
    assert RunView("run_", "run", tmp_path / "run").findings() == ([finding], 2)
