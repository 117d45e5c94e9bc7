import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.tracking.metrics_tail import MetricsTail
from agent_tunix.tracking.report.live import LiveCurves, Look
from agent_tunix.tracking.report.pictures import Chart


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def row(step: int, value: float = 0.5, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "rewards/total/mean": value,
        "rewards/correct/mean": value,
        "rewards/correct/weight": 1.0,
    } | more


def chart(look: Look | None, title: str) -> Chart:
    assert look is not None
    return next(chart for section in look.pictures.sections for chart in section.charts if chart.title == title)


def steps(look: Look | None) -> list[int]:
    return list(chart(look, "Total reward").lines[0].x)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def curves(path: Path) -> LiveCurves:
    return LiveCurves(MetricsTail(path))


def test_rows_are_drawn_as_they_come(curves: LiveCurves, path: Path) -> None:
    look = curves.look()
    assert look is not None
    assert (look.step, look.is_whole, look.pictures.sections) == (None, True, [])
    write(path, [row(1), row(2)])
    look = curves.look()
    assert steps(look) == [1, 2]
    assert look is not None
    seen = (look.step, look.version)
    assert curves.look(seen) is None
    write(path, [row(3)])
    look = curves.look(seen)
    assert steps(look) == [1, 2, 3]
    assert look is not None
    assert look.step == 3


def test_a_run_that_goes_back_is_drawn_anew(curves: LiveCurves, path: Path) -> None:
    write(path, [row(1, 0.1), row(2, 0.2), row(3, 0.3)])
    before = curves.look()
    other = path.with_suffix(".tmp")
    write(other, [row(1, 0.1), row(2, 0.9)])
    other.replace(path)
    after = curves.look()
    assert before is not None
    assert after is not None
    assert before.version != after.version
    assert list(chart(after, "Total reward").lines[0].y) == [0.1, 0.9]


def test_components_that_appear_late_have_charts(curves: LiveCurves, path: Path) -> None:
    write(path, [{"step": 0, "eval/accuracy": 0.2}])
    assert curves.look() is not None
    write(path, [row(1)])
    look = curves.look()
    assert chart(look, "Held-out accuracy").lines[0].y == [0.2]
    assert chart(look, "correct").lines[0].y == [0.5]


def test_a_long_run_is_read_in_several_looks_and_drawn_in_few_points(curves: LiveCurves, path: Path) -> None:
    write(path, [row(step) for step in range(1, 5001)])
    looks: list[Look] = []
    while not looks or not looks[-1].is_whole:
        look = curves.look()
        assert look is not None
        looks.append(look)
    assert [look.step for look in looks] == [2000, 4000, 5000]
    assert len(steps(looks[-1])) <= 400
