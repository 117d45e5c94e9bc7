"""Many runs in one table, however they ended."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.outcome import RunStatus
from agent_tunix.tracking.run_table import (
    RunRow,
    default_metric,
    find_runs,
    format_table,
    metric_names,
    read_table,
    sort_table,
)
from tests.raising import raises

METRIC = "eval/accuracy"


def make_run(
    root: Path,
    accuracies: list[float | None],
    *,
    status: str = "finished",
    overrides: list[str] | None = None,
    seed: int = 0,
) -> Path:
    """A run's directory with an evaluation a step, from step 0."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(to_yaml(Config(seed=seed)))
    (root / ".lock").touch()
    rows: list[dict[str, Any]] = [{"step": step, METRIC: value} for step, value in enumerate(accuracies)]
    for row in rows[1:]:
        row |= {"rewards/total/mean": row["step"] / 10, "time/step_s": 0.5, "policy/kl": None}
    (root / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stored = {"status": status, "overrides": overrides or [], "detail": "why" if status == "failed" else ""}
    (root / "status.json").write_text(json.dumps(stored))
    return root


def tear(path: Path) -> None:
    """Append half a row, as a kill may leave it."""
    path.write_text(path.read_text() + '{"step": 9, "eval')


def table(directory: Path, mode: str = "max") -> list[RunRow]:
    return read_table([(run.name, run) for run in find_runs(directory)], METRIC, mode)


def test_a_row_has_the_results_of_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [0.25, 0.75, 0.5], overrides=["seed=1"])
    (row,) = table(tmp_path)
    assert row == RunRow(
        "0",
        RunStatus.FINISHED,
        {"seed": "1"},
        steps=2,
        final=0.5,
        best=0.75,
        best_step=1,
        reward_before=0.1,
        reward_after=0.2,
        seconds=1.0,
    )
    (least,) = table(tmp_path, "min")
    assert (least.best, least.best_step) == (0.25, 0)
    (other,) = read_table([("0", tmp_path / "0")], "no/such")
    assert (other.final, other.best, other.best_step) == (None, None, None)


def test_only_overrides_that_differ_are_shown(tmp_path: Path) -> None:
    for seed in (1, 2):
        overrides = ["grpo.beta=0", f"seed={seed}", f"hydra.run.dir=run{seed}", "+experiment=quick_test"]
        make_run(tmp_path / str(seed), [0.5], overrides=overrides + (["optimizer=sgd"] if seed == 2 else []))
    assert [row.settings for row in table(tmp_path)] == [{"seed": "1"}, {"seed": "2", "optimizer": "sgd"}]


def test_without_overrides_configurations_are_compared(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), [0.5], seed=seed)
    assert [row.settings for row in table(tmp_path)] == [{"seed": "1"}, {"seed": "2"}]


@pytest.mark.parametrize("with_overrides", [True, False])
def test_worked_examples_that_the_seed_changes_are_shown(with_overrides: bool, tmp_path: Path) -> None:
    for seed, shot in ((1, "2 + 2?"), (2, "3 + 3?"), (3, "2 + 2?")):
        overrides = [f"seed={seed}", "prompt.num_few_shot=1"] if with_overrides else []
        run = make_run(tmp_path / str(seed), [0.5], overrides=overrides, seed=seed)
        prompt = PromptConfig(few_shot=[{"prompt": shot, "answer": "4"}])
        (run / "config.yaml").write_text(to_yaml(Config(seed=seed, prompt=prompt)))
    settings = [row.settings for row in table(tmp_path)]
    assert [set(one) for one in settings] == [{"seed", "prompt.few_shot"}] * 3
    first, second, third = (one["prompt.few_shot"] for one in settings)
    assert first == third != second
    assert first.startswith("1 (")


def test_runs_with_the_same_worked_examples_show_none(tmp_path: Path) -> None:
    prompt = PromptConfig(few_shot=[{"prompt": "2 + 2?", "answer": "4"}])
    for seed in (1, 2):
        run = make_run(tmp_path / str(seed), [0.5], overrides=[f"seed={seed}"])
        (run / "config.yaml").write_text(to_yaml(Config(seed=seed, prompt=prompt)))
    assert [row.settings for row in table(tmp_path)] == [{"seed": "1"}, {"seed": "2"}]


def test_a_metric_without_a_value_is_not_available(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [None, None])
    make_run(tmp_path / "1", [0.5, 0.25])
    _, first, second = format_table(table(tmp_path), METRIC, "table").splitlines()[:3]
    assert "n/a" in first.split()
    assert "n/a" not in second


def test_the_default_metric_is_one_that_a_run_has_a_value_of(tmp_path: Path) -> None:
    run = make_run(tmp_path / "0", [None, None])
    assert default_metric([("0", run)]) == METRIC
    rows = [
        json.loads(line) | {"eval/rewards/total/mean": 0.5} for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert default_metric([("0", run)]) == "eval/rewards/total/mean"


def spoil(name: str, content: bytes | None) -> Callable[[Path], object]:
    return lambda run: (run / name).unlink() if content is None else (run / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "status", "steps"),
    [
        *((spoil("metrics.jsonl", content), RunStatus.UNREADABLE, None) for content in (b"no\n{}\n", None)),
        *((spoil("config.yaml", content), RunStatus.UNREADABLE, 2) for content in (b"{", None)),
        (spoil("status.json", b"{"), RunStatus.UNREADABLE, 2),
        (spoil("status.json", None), RunStatus.STOPPED, 2),
    ],
)
def test_a_damaged_run_has_a_row_and_hides_no_other(tmp_path: Path, damage: Any, status: RunStatus, steps: Any) -> None:
    damage(make_run(tmp_path / "0", [0.25, None, 0.5]))
    make_run(tmp_path / "1", [0.5, 1.0])
    broken, whole = table(tmp_path)
    assert (broken.status, broken.steps) == (status, steps)
    assert (whole.status, whole.final) == (RunStatus.FINISHED, 1.0)
    assert bool(broken.detail) == (status is not RunStatus.FINISHED)
    for form in ("table", "json", "csv"):
        assert format_table([broken, whole], METRIC, form)


@pytest.mark.parametrize("status", ["failed", "stopped"])
def test_a_run_that_ended_early_may_lack_rows_without_damage(tmp_path: Path, status: str) -> None:
    tear(make_run(tmp_path / "0", [0.25, 0.5], status=status) / "metrics.jsonl")
    (make_run(tmp_path / "1", [], status=status) / "metrics.jsonl").unlink()
    assert [row.status for row in table(tmp_path)] == [status, status]


def test_a_single_run_shows_its_settings_only_if_they_are_few(tmp_path: Path) -> None:
    for number in (2, 12):
        run = tmp_path / str(number)
        make_run(run, [0.5], overrides=[f"grpo.key{place}=1" for place in range(number)])
        rows = table(run)
        assert ("grpo.key0" in format_table(rows, METRIC, "table")) == (number == 2)
        assert "grpo.key0" in format_table(rows, METRIC, "csv")


def test_the_names_of_metrics_are_those_of_all_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [0.5])
    make_run(tmp_path / "1", [0.5, 0.5])
    (make_run(tmp_path / "2", []) / "metrics.jsonl").unlink()
    names = metric_names([(run.name, run) for run in find_runs(tmp_path)])
    assert names == [METRIC, "policy/kl", "rewards/total/mean", "time/step_s"]


def test_runs_are_found_at_any_depth_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10", "2", "inner/1"):
        make_run(tmp_path / name, [0.5])
    make_run(tmp_path / "2" / "copy", [0.5])  # a run's directory is its own
    assert [str(run.relative_to(tmp_path)) for run in find_runs(tmp_path)] == ["2", "10", "inner/1"]
    assert find_runs(tmp_path / "2") == [tmp_path / "2"]


@pytest.mark.parametrize(
    ("name", "code"), [("absent", "missing_run"), ("empty", "missing_run"), ("file", "missing_run")]
)
def test_a_place_without_runs_is_refused(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with raises(RunDirectoryError, code):
        find_runs(tmp_path / name)


def test_the_better_come_first_and_those_without_a_value_last() -> None:
    rows = [
        RunRow(name, RunStatus.FINISHED, final=value) for name, value in zip("abcd", (0.5, None, 0.9, 0.1), strict=True)
    ]
    assert [row.name for row in sort_table(rows, "final", "max")] == ["c", "a", "d", "b"]
    assert [row.name for row in sort_table(rows, "final", "min")] == ["d", "a", "c", "b"]


def test_the_forms_hold_the_same(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [0.25, 0.75], overrides=["seed=1"])
    make_run(tmp_path / "1", [0.25], overrides=["seed=2"], status="failed")
    rows = table(tmp_path)
    assert format_table(rows, METRIC, "table").splitlines() == [
        "run  seed  status    steps  eval/accuracy  best  at step  reward before  after  time",
        "0    1     finished      1           0.75  0.75        1            0.1    0.1  0:00",
        "1    2     failed        0           0.25  0.25        0                        0:00",
        "1: why",
    ]
    found = json.loads(format_table(rows, METRIC, "json"))
    assert [(row["settings"], row["status"], row["final"]) for row in found] == [
        ({"seed": "1"}, "finished", 0.75),
        ({"seed": "2"}, "failed", 0.25),
    ]
    parsed = list(csv.DictReader(io.StringIO(format_table(rows, METRIC, "csv"))))
    assert [(row["seed"], row["status"], row["final"]) for row in parsed] == [
        ("1", "finished", "0.75"),
        ("2", "failed", "0.25"),
    ]


def test_settings_of_a_table_that_is_wider_than_the_terminal_follow_it() -> None:
    settings = {f"reward.components.a_long_name_{number}.weight": "0.5" for number in range(4)}
    rows = [RunRow(str(number), RunStatus.FINISHED, settings) for number in range(3)]
    table = format_table(rows, METRIC, "table", width=100)
    assert max(map(len, table.splitlines())) <= 100
    assert "  reward.components.a_long_name_0.weight: 0 0.5, 1 0.5, 2 0.5" in table.splitlines()
    assert len(table.splitlines()) == 1 + 3 + 1 + 4
    assert format_table(rows, METRIC, "table", width=1000) == format_table(rows, METRIC, "table")
