from pathlib import Path

import pytest

from agent_tunix.tracking import metrics_tail
from agent_tunix.tracking.metrics_file import MetricsFile, cut_after
from agent_tunix.tracking.metrics_tail import MetricsTail, read_last_rows


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
    path.write_bytes(b'{"step": 1}\n\xff\n[]\n{"step": "x"}\n{"step": 2, "a": NaN, "b": 1e999}\n')
    page = MetricsTail(path).page()
    assert read_last_rows(path) == page.rows
    assert page.rows == [{"step": 1}, {"step": 2, "a": None, "b": None}]
    assert page.damaged == 3


def test_evaluations_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(10):
            file.write(step, {"a": 1.0} | ({"eval/accuracy": step / 10} if step % 5 == 0 else {}))
    tail = MetricsTail(path)
    seen = [{"step": 0, "eval/accuracy": 0.0}, {"step": 5, "eval/accuracy": 0.5}]
    assert tail.evaluations() == (seen, 0)
    with MetricsFile(path) as file:
        file.write(10, {"eval/accuracy": 1.0, "note": "eval/"})
        file.write(11, {"note": "eval/accuracy"})
    assert tail.evaluations() == ([*seen, {"step": 10, "eval/accuracy": 1.0}], 0)
    path.unlink()
    assert tail.evaluations() == ([], 0)


def test_the_first_and_the_last_of_many_evaluations_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_tail, "MAX_EVALUATIONS", 4)
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(100):
            file.write(step, {"eval/accuracy": 0.5})
    rows, num_left_out = MetricsTail(path).evaluations()
    assert ([row["step"] for row in rows], num_left_out) == ([0, 97, 98, 99], 96)
