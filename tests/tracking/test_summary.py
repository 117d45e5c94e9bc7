"""The table at the end of a run."""

from typing import Any

import pytest

from agent_tunix.tracking.summary import compare_ends, summary_table

ROWS: list[dict[str, Any]] = [
    {"step": 0, "eval/accuracy": 0.25},
    *({"step": step, "rewards/total/mean": step / 100} for step in range(1, 100)),
    {"step": 100, "rewards/total/mean": 1.0, "eval/accuracy": 0.75},
]


def test_ends_are_the_evaluations_and_the_outer_ten_steps() -> None:
    before, after = compare_ends(ROWS)
    assert before == pytest.approx({"accuracy": 0.25, "reward, 10-step mean": 0.055})
    assert after == pytest.approx({"accuracy": 0.75, "reward, 10-step mean": 0.955})


def test_unscored_steps_are_passed_over() -> None:
    before, after = compare_ends([{"step": 1, "rewards/total/mean": None}, {"step": 2, "rewards/total/mean": 0.5}])
    assert before == after == {"reward, 1-step mean": 0.5}


def test_a_short_run_is_compared_by_its_halves() -> None:
    rows = [{"step": step, "rewards/total/mean": step / 10} for step in range(1, 6)]
    before, after = compare_ends(rows)
    assert before == pytest.approx({"reward, 3-step mean": 0.2})
    assert after == pytest.approx({"reward, 3-step mean": 0.4})


def test_run_without_a_step_has_nothing_to_compare() -> None:
    before, after = compare_ends([])
    assert before == after == {"reward, 0-step mean": None}
    assert "n/a" in summary_table(before, after, {}, num_steps=0, seconds=0)


def test_an_evaluation_without_a_verdict_is_not_available_and_not_passed_over() -> None:
    before, after = compare_ends([*ROWS, {"step": 101, "eval/accuracy": None}])
    assert (before["accuracy"], after["accuracy"]) == (0.25, None)
    assert "accuracy              25.0 %    n/a     n/a" in summary_table(before, after, {}, num_steps=1, seconds=1)


def test_table_shows_change_time_and_places() -> None:
    places = {"metrics": "run/metrics.jsonl", "checkpoints": "run/checkpoints"}
    resumed = summary_table(*compare_ends(ROWS), places, num_steps=100, seconds=134, resumed_after=40)
    assert "60 steps in 2:14, resumed after step 40" in resumed
    table = summary_table(*compare_ends(ROWS), places, num_steps=100, seconds=134)
    assert table == (
        "                      before   after   change\n"
        "accuracy              25.0 %  75.0 %  +50.0 %\n"
        "reward, 10-step mean   0.055   0.955   +0.900\n"
        "\n"
        "100 steps in 2:14\n"
        "metrics      run/metrics.jsonl\n"
        "checkpoints  run/checkpoints"
    )


def test_a_reward_whose_weights_changed_is_marked() -> None:
    rows = [{"step": step, "rewards/total/mean": 0.5, "rewards/a/weight": 0.1 * step} for step in (1, 2)]
    assert list(compare_ends(rows)[0]) == ["reward, 1-step mean (weights changed)"]
