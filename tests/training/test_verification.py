"""Differences between two runs, as `verify-resume` reports them; the page docs/resuming.md has a real kill."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.training.verification import (
    VerificationError,
    first_difference,
    first_rollout_difference,
    read_rows,
    verify,
)
from tests.raising import raises
from tests.tracking.rollouts.support import make_step, write

ROWS: list[dict[str, Any]] = [{"step": 0, "a": 1.0}, {"step": 1, "a": 2.0, "b": None}]


def test_equal_rows_have_no_difference() -> None:
    assert first_difference(ROWS, [dict(row) for row in ROWS]) is None


def test_the_first_difference_is_named_by_step_and_key() -> None:
    found = first_difference(ROWS, [ROWS[0], {"step": 1, "a": 2.5, "b": 7}])
    assert found == "step 1: a is 2.0 unbroken, 2.5 resumed"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([ROWS[0], {"step": 1, "a": 2.0}], None),  # null says as much as nothing
        ([ROWS[0], {**ROWS[1], "c": 3}], "step 1: c is None unbroken, 3 resumed"),
        ([{"step": 0}, ROWS[1]], "step 0: a is 1.0 unbroken, None resumed"),
        (ROWS[:1], "2 rows unbroken, 1 resumed"),
        ([*ROWS, {"step": 2}], "2 rows unbroken, 3 resumed"),
        ([ROWS[1], ROWS[1]], "step 0: step is 0 unbroken, 1 resumed"),
    ],
)
def test_what_is_missing_or_more_is_a_difference(found: list[dict[str, Any]], said: str | None) -> None:
    assert first_difference(ROWS, found) == said


def test_runs_of_an_earlier_verification_are_not_compared_again(tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    with raises(VerificationError, "directory_taken"):
        verify([], directory=tmp_path)


def test_timings_are_left_out(tmp_path: Path) -> None:
    row = {"step": 1, "time/step_s": 0.1, "throughput/tokens_per_s": 9.0, "policy/loss": 0.5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert read_rows(tmp_path) == [{"step": 1, "policy/loss": 0.5}]


def test_a_run_without_rows_has_none(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []


def test_equal_rollouts_have_no_difference_whatever_they_took_or_said(tmp_path: Path) -> None:
    stored = make_step(1)
    other = [replace(score, seconds=9.0, detail="later", extras={"at": 9}) for score in stored.scores]
    write(tmp_path / "a" / "rollouts", stored, make_step(2), flush_after=[1])
    write(tmp_path / "b" / "rollouts", replace(stored, scores=other), make_step(2))
    assert first_rollout_difference(tmp_path / "a", tmp_path / "b") is None
    assert first_rollout_difference(tmp_path / "none", tmp_path / "none") is None


def test_the_first_rollout_that_differs_is_named(tmp_path: Path) -> None:
    stored = make_step(2)
    samples = [replace(sample, num_tokens=9) if row == 3 else sample for row, sample in enumerate(stored.samples)]
    write(tmp_path / "a" / "rollouts", make_step(1), stored)
    write(tmp_path / "b" / "rollouts", make_step(1), replace(stored, samples=samples))
    write(tmp_path / "c" / "rollouts", make_step(1))
    found = first_rollout_difference(tmp_path / "a", tmp_path / "b")
    assert found == "rollout 2_1_1: num_tokens is 4 unbroken, 9 resumed"
    assert first_rollout_difference(tmp_path / "a", tmp_path / "c") == "rollout 2_0_0 is missing in the resumed run"
    assert first_rollout_difference(tmp_path / "c", tmp_path / "a") == "rollout 2_0_0 is missing in the unbroken run"


def test_a_run_that_fails_by_itself_is_reported_with_its_message(tmp_path: Path) -> None:
    """The program is the one that was asked for: only a supervised start needs a column of solutions."""
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text('{"question": "What is 2 plus 2?", "answer": "4"}\n' * 64)
    with raises(VerificationError, "run_failed", "the column 'solution'"):
        verify(["data.source=jsonl", f"data.path={tmp_path}"], directory=tmp_path / "runs", program="sft")
