import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.tracking.test_run_table import make_run

from agent_tunix.cli.comparing import compare


@pytest.mark.parametrize(
    ("metric", "said"),
    [("policy/kll", "the closest are policy/kl"), ("eval/acuracy", "eval/accuracy"), ("§", "the metrics are ")],
)
def test_a_metric_that_no_run_has_is_refused_with_those_near_it(tmp_path: Path, metric: str, said: str) -> None:
    make_run(tmp_path / "0", [0.5, 0.5])
    done = CliRunner().invoke(compare, [str(tmp_path), "--metric", metric])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"no run has the metric {metric!r}; " in done.stderr
    assert said in done.stderr


def test_a_metric_that_was_never_a_number_is_shown_empty(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [0.5, 0.5])
    done = CliRunner().invoke(compare, [str(tmp_path), "--metric", "policy/kl"])
    assert (done.exit_code, done.stderr) == (0, "")


def test_runs_that_have_no_metrics_yet_are_shown(tmp_path: Path) -> None:
    make_run(tmp_path / "0", [], status="stopped")
    assert CliRunner().invoke(compare, [str(tmp_path), "--metric", "nope"]).exit_code == 0


def test_runs_that_are_given_directly_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(tmp_path / name / "12-00-00", [0.5, 0.5]) for name in ("a", "b")]

    def names(*directories: object) -> list[str]:
        done = CliRunner().invoke(compare, [*map(str, directories), "--format", "json"])
        return [row["name"] for row in json.loads(done.stdout)]

    assert names(*runs) == [str(run) for run in runs]
    assert names(runs[0]) == ["12-00-00"]
    monkeypatch.chdir(runs[0])
    assert names(".") == ["12-00-00"]
