"""The progress display of a run, and the table at its end."""

import contextlib
import io
import os
import pty
import re
from typing import Any

import pytest

from agent_tunix.tracking.progress import Progress, format_duration
from agent_tunix.tracking.summary import compare_ends, explain_unknown, summary_table, unknown_figures


class Clock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_line_tells_how_the_run_does() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("auto", num_steps=100, stream=stream, clock=clock) as progress:
        progress.update(0, {"eval/accuracy": 0.25})
        for step in range(1, 11):
            clock.now += 6
            progress.update(step, {"rewards/total/mean": step / 20, "throughput/tokens_per_s": 1234.5})
    lines = stream.getvalue().splitlines()
    assert lines[0] == "step 0/100  accuracy 25.0%"
    assert lines[1] == "step 1/100  reward 0.050  accuracy 25.0% at step 0  1,234 tokens/s"
    assert lines[-1] == "step 10/100  reward 0.500  accuracy 25.0% at step 0  1,234 tokens/s  9:00 left"
    assert len(lines) == 11


def test_plain_lines_are_some_seconds_apart_but_for_first_evaluated_and_last() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("plain", num_steps=40, stream=stream, clock=clock) as progress:
        for step in range(1, 41):
            clock.now += 1
            progress.update(step, {"eval/accuracy": 0.5} if step == 13 else {})
    shown = [int(number) for number in re.findall(r"step (\d+)/", stream.getvalue())]
    assert shown == [1, 6, 11, 13, 18, 23, 28, 33, 38, 40]


@pytest.mark.parametrize(
    ("num_steps", "rows", "lines"),
    [
        (40, [(1, {}), (2, {}), (3, {})], ["step 1/40", "step 3/40"]),
        (4, [(1, {"rewards/total/mean": None})], ["step 1/4"]),
        (
            4,
            [(1, {"eval/accuracy": 0.5}), (2, {"eval/accuracy": None})],
            ["step 1/4  accuracy 50.0%", "step 2/4  accuracy n/a"],
        ),
    ],
    ids=["stopped early", "unscored step", "evaluation without a verdict"],
)
def test_the_last_step_is_shown_without_values_that_are_not_known(num_steps: int, rows: Any, lines: list[str]) -> None:
    stream = io.StringIO()
    with Progress("plain", num_steps=num_steps, stream=stream, clock=Clock()) as progress:
        for step, row in rows:
            progress.update(step, row)
    assert [line.removesuffix("  0:00 left") for line in stream.getvalue().splitlines()] == lines


def test_time_left_of_a_resumed_run_counts_its_own_steps_only() -> None:
    stream, clock = io.StringIO(), Clock()
    with Progress("plain", num_steps=100, done=90, stream=stream, clock=clock) as progress:
        for step in (91, 92, 93):
            clock.now += 10
            progress.update(step, {})
    assert stream.getvalue().splitlines()[-1] == "step 93/100  1:10 left"


def test_reader_that_has_gone_does_not_stop_the_run() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    stream = io.TextIOWrapper(io.FileIO(write_end, "wb"), write_through=True)
    with Progress("plain", num_steps=4, stream=stream) as progress:
        progress.update(1, {})
    stream.close()


def test_none_shows_nothing() -> None:
    stream = io.StringIO()
    with Progress("none", num_steps=4, stream=stream) as progress:
        progress.update(4, {"rewards/total/mean": 0.5})
    assert stream.getvalue() == ""


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_terminal_gets_a_bar_unless_it_is_dumb(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "100")
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w", encoding="utf-8") as stream, Progress("auto", num_steps=4, stream=stream) as progress:
        progress.update(4, {"rewards/total/mean": 0.5})
    shown = b""
    with contextlib.suppress(OSError):  # at the end, the other side being closed
        while part := os.read(controller, 65536):
            shown += part
    os.close(controller)
    assert b"step 4/4  reward 0.500" in shown
    assert ("━".encode() in shown) is (term == "xterm")


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (67, "1:07"), (750, "12:30"), (3723, "1:02:03")])
def test_duration_reads_like_a_clock(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


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
    table = summary_table(*compare_ends(ROWS), places, num_steps=100, seconds=134)
    resumed = summary_table(*compare_ends(ROWS), places, num_steps=100, seconds=134, resumed_after=40)
    assert "60 steps in 2:14, resumed after step 40" in resumed
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


@pytest.mark.parametrize(
    ("template", "metrics", "expected"),
    [
        (
            "<answer>{answer}</answer>",
            {"eval/accuracy": None, "eval/partial_accuracy": None, "eval/format_accuracy": 0.5},
            ["accuracy and partial accuracy: n/a, because 19 completions of 20 problems have no score"],
        ),
        (
            "{answer}",
            {"eval/accuracy": 0.5, "eval/format_accuracy": None},
            ["format accuracy: n/a, because prompt.format"],
        ),
        ("<answer>{answer}</answer>", {"eval/accuracy": 0.5, "eval/format_accuracy": 0.5}, []),
    ],
)
def test_figures_that_are_not_available_have_a_reason(
    template: str, metrics: dict[str, float | None], expected: list[str]
) -> None:
    evaluated = {"step": 0, "eval/num_problems": 20, "eval/num_unscored": 19, **metrics}
    unknown = unknown_figures([evaluated, {"step": 1, "rewards/total/mean": 0.5}], template)
    lines = explain_unknown(unknown)
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))
    table = summary_table(*compare_ends([evaluated]), {}, num_steps=1, seconds=1, unknown=unknown)
    assert all(line in table.splitlines() for line in lines)


def test_without_an_accuracy_the_progress_has_the_held_out_reward_too() -> None:
    stream = io.StringIO()
    with Progress("plain", 4, stream=stream) as progress:
        progress.update(0, {"eval/accuracy": None, "eval/rewards/total/mean": 0.25})
    assert stream.getvalue() == "step 0/4  accuracy n/a, held-out reward 0.250\n"
