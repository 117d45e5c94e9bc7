import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_tunix.config.compose import find_conf_directory

# Says of each job its seed.
PROGRAM = """
import sys
from agent_tunix.cli import hydra_programs

hydra_programs._train = lambda cfg: print("seed", cfg.seed)
hydra_programs.train(sys.argv[1:])
"""
pytestmark = pytest.mark.slow
SWEEP = "hydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      seed: 3,4\n"


def compose(directory: Path, *arguments: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HYDRA_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("seed")]


@pytest.mark.parametrize("arguments", [["--multirun", "seed=3,4"], ["hydra.mode=MULTIRUN", "seed=3,4"]])
def test_arguments_may_ask_for_a_sweep(arguments: list[str], tmp_path: Path) -> None:
    assert compose(tmp_path, *arguments) == ["seed 3", "seed 4"]


def test_a_configuration_of_the_user_may_ask_for_a_sweep(tmp_path: Path) -> None:
    own = tmp_path / "conf" / "mine"
    own.mkdir(parents=True)
    (own / "sweep.yaml").write_text(f"# @package _global_\n{SWEEP}")
    assert compose(tmp_path, "--config-dir", "conf", "+mine=sweep") == ["seed 3", "seed 4"]


def test_no_shipped_configuration_asks_for_a_sweep() -> None:
    for path in find_conf_directory().rglob("*.yaml"):
        assert "MULTIRUN" not in path.read_text(), path
