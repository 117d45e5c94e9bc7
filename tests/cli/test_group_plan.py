"""`agent-tunix rewards plan`: group sizes from a pilot."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main

SMALL = ["rewards", "plan", "--problems", "4", "--samples", "4"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_plan_forecasts_each_group_size_and_writes_the_problems(tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, [*SMALL, "--json", "--write", "pilot.jsonl", "--target", "1"])
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    assert [forecast["num_generations"] for forecast in data["forecasts"]] == [2, 4]
    assert {forecast["temperature"] for forecast in data["forecasts"]} == {1.0}
    assert data["overrides"][0].startswith("grpo.num_generations=")
    rows = [json.loads(line) for line in (tmp_path / "pilot.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(len(row["totals"]["1"]) == 4 for row in rows)


@pytest.mark.slow
def test_a_reward_that_is_the_same_for_all_has_no_group_size() -> None:
    Path("mine.py").write_text("def same(response):\n    return 1.0\n")
    ran = CliRunner().invoke(main, [*SMALL, "--reward", "mine.py:same"])
    assert ran.exit_code == 1, ran.output
    assert "no group size keeps the dead groups within 25%" in ran.stdout


def test_a_group_larger_than_the_samples_is_refused() -> None:
    ran = CliRunner().invoke(main, [*SMALL, "--group-size", "8"])
    assert ran.exit_code == 2
    assert "--group-size must be at most --samples 4, not 8" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--reward", "mathh"], "math"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--model", "nowhere"], "nowhere"),
        (["training.batchsize=3"], "batchsize"),
        (["environment=calculator"], "requires a run without environment.name"),
        (["environment.tools=[calculator]"], "requires a run without environment.name"),
    ],
)
def test_a_wrong_option_is_explained(arguments: list[str], told: str) -> None:
    ran = CliRunner().invoke(main, [*SMALL, *arguments])
    assert ran.exit_code == 2, ran.output
    assert told in ran.stderr
