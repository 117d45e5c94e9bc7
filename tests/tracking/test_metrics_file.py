"""`metrics.jsonl` through kills, full disks and resumes, and its values as plain Python."""

import json
import math
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.metrics_file import (
    MetricsFile,
    cut_after,
    is_histogram,
    is_number,
    missing_steps,
    read_rows,
    to_plain,
)
from tests.raising import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def write_steps(path: Path, *steps: int) -> None:
    with MetricsFile(path) as file:
        for step in steps:
            file.write(step, {"rewards/total/mean": step / 10})


def steps_of(path: Path) -> list[int]:
    return [row["step"] for row in read_rows(path)]


def test_row_has_the_step_first_and_the_names_in_order(path: Path) -> None:
    with MetricsFile(path) as file:
        file.write(3, {"b": np.float32(0.5), "eval/accuracy": None, "a": math.nan, "c": {"counts": np.array([1])}})
    assert path.read_text() == '{"step": 3, "a": null, "b": 0.5, "c": {"counts": [1]}, "eval/accuracy": null}\n'


def test_row_is_there_before_the_file_is_closed(path: Path) -> None:
    with MetricsFile(path) as file:
        file.write(0, {"eval/accuracy": 0.25})
        assert read_rows(path) == [{"step": 0, "eval/accuracy": 0.25}]


def test_appending_keeps_what_is_there(path: Path) -> None:
    write_steps(path, 0, 1)
    write_steps(path, 2)
    assert steps_of(path) == [0, 1, 2]


@pytest.mark.parametrize(("last", "kept"), [(2, [0, 1, 2]), (0, [0]), (-1, []), (9, [0, 1, 2, 3])])
def test_cutting_removes_later_rows(last: int, kept: list[int], path: Path) -> None:
    write_steps(path, 0, 1, 2, 3)
    before = path.read_bytes()
    cut_after(path, last)
    assert steps_of(path) == kept
    assert before.startswith(path.read_bytes())
    assert list(path.parent.iterdir()) == [path]
    write_steps(path, last + 1)
    assert steps_of(path) == [*kept, last + 1]


@pytest.mark.parametrize(("written", "missing"), [((0, 1, 2), []), ((0, 2), [1]), ((1, 2, 3), [0]), ((0,), [1, 2])])
def test_steps_without_a_row_are_found(written: tuple[int, ...], missing: list[int], path: Path) -> None:
    write_steps(path, *written)
    assert missing_steps(path, 2) == missing


def test_without_a_file_every_step_is_missing_and_nothing_is_cut(path: Path) -> None:
    cut_after(path, 5)
    assert missing_steps(path, 2) == [0, 1, 2]
    assert not path.exists()


@given(st.integers(0, 200))
def test_line_torn_anywhere_loses_at_most_itself(size: int) -> None:
    lines = [json.dumps({"step": step, "rewards/total/mean": step / 3}).encode() + b"\n" for step in range(4)]
    whole = b"".join(lines)
    torn = whole[:size]
    # A row without its newline is whole all the same.
    num_whole = sum(len(b"".join(lines[: count + 1])) - 1 <= len(torn) for count in range(4))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        path.write_bytes(torn)
        assert steps_of(path) == list(range(num_whole))
        cut_after(path, 99)
        assert path.read_bytes() == b"".join(lines[:num_whole])


def test_zeros_at_the_end_after_a_power_cut_are_left_out(path: Path) -> None:
    write_steps(path, 0, 1)
    with path.open("ab") as file:
        file.write(bytes(300))
    assert steps_of(path) == [0, 1]


@pytest.mark.parametrize("line", ["{torn", "[]", '{"no": "step"}', '{"step": null}'])
def test_damage_in_the_middle_is_named(line: str, path: Path) -> None:
    path.write_text(f'{{"step": 0}}\n{line}\n{{"step": 2}}\n')
    with raises(RunDirectoryError, "damaged_run") as caught:
        read_rows(path)
    assert "line 2" in str(caught.value)


def test_full_disk_is_a_clear_error() -> None:
    with (
        MetricsFile(Path("/dev/full")) as file,
        raises(RunDirectoryError, "unwritable_directory") as caught,
    ):
        file.write(1, {"a": 1})
    assert "No space left on device" in str(caught.value)


@pytest.mark.parametrize(("open_file", "code"), [(MetricsFile, "unwritable_directory"), (read_rows, "damaged_run")])
def test_a_file_that_cannot_be_opened_is_a_clear_error(
    open_file: Callable[[Path], object], code: str, tmp_path: Path
) -> None:
    with raises(RunDirectoryError, code):
        open_file(tmp_path / "none" / "metrics.jsonl")


def test_a_run_stops_if_its_directory_was_moved(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    with MetricsFile(root / "metrics.jsonl") as file:
        file.write(1, {})
        root.rename(tmp_path / "moved")
        for replaced in (False, True):
            if replaced:
                root.mkdir()
                (root / "metrics.jsonl").touch()
            with raises(RunDirectoryError, "unwritable_directory"):
                file.write(2, {})
    assert steps_of(tmp_path / "moved" / "metrics.jsonl") == [1]


def test_a_removed_file_begins_anew_and_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MetricsFile(path) as file:
        file.write(1, {})
        path.unlink()
        file.write(2, {})
    assert steps_of(path) == [2]
    assert "its earlier rows are lost" in caplog.text


def test_row_that_does_not_fit_leaves_the_file_whole(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsFile(path) as file:
        file.write(0, {})
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))
        try:
            with raises(RunDirectoryError, "unwritable_directory") as caught:
                file.write(1, {"x": "y" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be written: File too large" in str(caught.value)
    assert path.read_text() == '{"step": 0}\n'


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (0.5, 0.5),
        (3, 3),
        (True, True),
        (None, None),
        ("text", "text"),
        (math.nan, None),
        (-math.inf, None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(2**40), 2**40),
        (np.bool_(True), True),
        (np.array(0.25), 0.25),
        (np.array([1.0, np.nan]), [1.0, None]),
        ([np.float32(1), (2, math.inf)], [1.0, [2, None]]),
        ({"counts": np.array([1, 2]), "edges": [0.0, np.float16(0.5), 1.0]}, {"counts": [1, 2], "edges": [0, 0.5, 1]}),
    ],
)
def test_value_becomes_plain(value: Any, plain: Any) -> None:
    assert to_plain(value) == plain
    assert type(to_plain(value)) is type(plain)
    json.dumps(to_plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "histogram"),
    [
        ({"counts": [1, 2], "edges": [0, 0.5, 1]}, True),
        ({"counts": [1, 2], "edges": [0, 1]}, False),
        ({"counts": [1], "edges": [0, None]}, False),
        ({"counts": [], "edges": [0]}, False),
        ({"counts": [1]}, False),
        (0.5, False),
        (None, False),
    ],
)
def test_histogram_is_recognised(value: Any, histogram: bool) -> None:
    assert is_histogram(value) is histogram


def test_number_is_recognised() -> None:
    assert [is_number(value) for value in (1, 0.5, True, None, "1", [1])] == [True, True, True, False, False, False]
