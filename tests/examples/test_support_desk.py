"""The task of examples/support_desk, run once from an empty directory as a reader would."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.tracking import read_rows

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "examples" / "support_desk" / "support_desk.sh"
HELD_OUT = "eval/rewards/total/mean"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of the task, and what the script printed."""
    directory = tmp_path_factory.mktemp("support")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PORT": str(port),
        "AGENT_TUNIX_HOME": str(directory / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", str(SCRIPT), str(directory / "desk")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "desk", done.stdout


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(run / "metrics.jsonl") if "eval/num_problems" in row]


def test_an_answer_is_explained_component_by_component(desk: tuple[Path, str]) -> None:
    for part in ("keywords: 1 × 1", "brevity: 0.3 ×", "whole: 0.2 × 1"):
        assert part in desk[1]


def test_the_reward_measures_in_every_table(desk: tuple[Path, str]) -> None:
    directory, printed = desk
    rows = evaluations(directory / "runs" / "first")
    assert [row["step"] for row in rows] == [0, 1, 2]
    for row in rows:
        parts = {name: row[f"eval/rewards/{name}/mean"] for name in ("keywords", "brevity", "whole")}
        assert row[HELD_OUT] == pytest.approx(parts["keywords"] + 0.3 * parts["brevity"] + 0.2 * parts["whole"])
        # Of two keywords, one is enough to count as correct.
        assert parts["keywords"] <= row["eval/accuracy"] <= 2 * parts["keywords"]
        assert row["eval/num_unscored"] == row["eval/rewards/num_unscored"] == 0
    assert "held-out reward" in printed
    compared = CliRunner().invoke(main, ["compare", str(directory / "runs" / "first"), "--metric", HELD_OUT])
    assert f"{rows[-1][HELD_OUT]:.4g}" in compared.output
    assert "Held-out reward" in (directory / "runs" / "first" / "report.html").read_text()


def test_the_run_ends_early_by_the_held_out_reward(desk: tuple[Path, str]) -> None:
    assert (
        "the run stops early, after step 2 of 6: eval/rewards/total/mean"
        in (desk[0] / "runs" / "first" / "train.log").read_text()
    )


def test_the_sweep_has_four_runs_in_one_table(desk: tuple[Path, str]) -> None:
    sweep = desk[0] / "runs" / "sweep"
    assert [len(evaluations(sweep / str(number))) for number in range(4)] == [3] * 4
    assert all(f"{rate}" in desk[1] for rate in ("0.0001", "0.001"))
    assert "--sort best shows this again" in desk[1]


def test_the_sweep_compiles_once(desk: tuple[Path, str]) -> None:
    runs = [desk[0] / "runs" / "sweep" / str(number) for number in range(4)]
    timings = [json.loads((run / "timings.json").read_text()) for run in runs]
    assert [one["programs"]["compiled"] for one in timings[1:]] == [0, 0, 0]


def test_a_replay_shows_what_another_weight_would_have_paid(desk: tuple[Path, str]) -> None:
    assert "changed: weight of brevity 0.3 → 0.9" in desk[1]
    assert "32 completions of 2 steps" in desk[1]


def test_the_uploaded_mixture_is_the_reward(desk: tuple[Path, str]) -> None:
    components = yaml.safe_load((desk[0] / "conf" / "reward" / "stored.yaml").read_text())["components"]
    assert list(components) == ["keywords", "brevity", "whole"]
    assert all(components[name]["function"].startswith("rf_") for name in ("keywords", "brevity"))


def test_the_model_is_exported_with_its_card(desk: tuple[Path, str]) -> None:
    exported = desk[0] / "exported"
    assert (exported / "model.safetensors").is_file()
    assert "keywords: 1 × support.keywords" in (exported / "README.md").read_text()
