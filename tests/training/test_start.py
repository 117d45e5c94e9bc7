"""Starts of a run: imports, compiled programs, and programs that a second start reads from the disk.

A run of two steps in a process of its own, and another one, on one compilation cache.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.small_run import SMALL_RUN

pytestmark = pytest.mark.slow

PROGRAM = """
import atexit, json, sys
atexit.register(lambda: open("modules.json", "w").write(json.dumps(sorted(sys.modules))))
from agent_tunix.cli.hydra_programs import train
train(sys.argv[1:])
"""
# Another run of a sweep: its programs have these numbers as inputs.
OTHER_NUMBERS = (
    "seed=1",
    "training.num_batches=3",
    "optimizer.learning_rate=3e-4",
    "optimizer.warmup_ratio=0.4",
    "scheduler.final_ratio=0.2",
    "grpo.beta=0.1",
    "grpo.epsilon=0.1",
    "grpo.epsilon_high=0.3",
)
RUN = (*SMALL_RUN, "training.num_batches=2", "training.save_interval_steps=1", "hydra.run.dir=run")


@dataclass(frozen=True)
class Start:
    """Modules imported at the end of a start, its `timings.json`, and its output."""

    modules: frozenset[str]
    timings: dict[str, Any]
    log: str


def start(directory: Path, *overrides: str) -> Start:
    cache = directory / "cache"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *RUN, f"distributed.compilation_cache={cache}", *overrides],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Start(
        frozenset(json.loads((directory / "modules.json").read_text())),
        json.loads((directory / "run" / "timings.json").read_text()),
        done.stdout + done.stderr,
    )


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Start, Start]:
    """The first start, and one of a run with other numbers."""
    directory = tmp_path_factory.mktemp("starts")
    first = start(directory)
    shutil.rmtree(directory / "run")
    return first, start(directory, *OTHER_NUMBERS)


NOT_NEEDED = [
    "tensorflow",
    "tensorflow_datasets",
    "datasets",
    "transformers",
    "torch",
    "wandb",
    "mlflow",
    "matplotlib",
    "sqlalchemy",
    "fastapi",
    "sympy",
]


def test_a_default_run_imports_nothing_that_it_does_not_need(starts: tuple[Start, ...]) -> None:
    assert starts[0].modules.isdisjoint(NOT_NEEDED)


def test_no_program_is_compiled_twice_and_a_start_with_other_numbers_compiles_none(starts: tuple[Start, ...]) -> None:
    first, other = (told.timings["programs"] for told in starts)
    # The optimiser's state, sampler for training and for evaluation, reference, update, the schedule; and one more.
    assert first["compiled"] <= 7
    assert first["from_cache"] == 0
    assert (other["compiled"], other["from_cache"]) == (0, first["compiled"])


def test_every_phase_is_told(starts: tuple[Start, ...]) -> None:
    phases = set(starts[0].timings["phases_s"])
    assert phases >= {"imports", "configuration", "checks", "data", "model", "learner", "tracing", "first step"}
    assert "evaluation" in phases
    assert "time: " in starts[0].log
    assert starts[0].timings["total_s"] == pytest.approx(sum(starts[0].timings["phases_s"].values()), abs=0.05)
