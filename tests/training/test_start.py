"""How a run starts: what it imports, what it compiles, what a second start reads from the disk.

Two runs of one step in processes of their own, the second after the first, on one compilation cache.
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

PROGRAM = """
import atexit, json, sys
cache, *overrides = sys.argv[1:]
atexit.register(lambda: open("modules.json", "w").write(json.dumps(sorted(sys.modules))))
from agent_tunix.cli.hydra_programs import train
train(["training.reward_function=math", "training.num_batches=1", "evaluation.num_samples=16", "hydra.run.dir=run",
       f"distributed.compilation_cache={cache}", "tracking.report=false", *overrides])
"""


@dataclass(frozen=True)
class Start:
    """What a start came to.

    Attributes:
        modules: What was imported at the end.
        timings: `timings.json`.
        log: What was printed.
        foreseen: The programs that the next start of this kind will load before it asks for them.
    """

    modules: frozenset[str]
    timings: dict[str, Any]
    log: str
    foreseen: frozenset[str]


def start(directory: Path, *overrides: str) -> Start:
    directory.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory.parent / "cache"), *overrides],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    kinds = list((directory.parent / "cache").glob("*/agent_tunix_foreseen-*"))
    assert len(kinds) == 1
    return Start(
        frozenset(json.loads((directory / "modules.json").read_text())),
        json.loads((directory / "run" / "timings.json").read_text()),
        done.stdout + done.stderr,
        frozenset(line for path in kinds for line in path.read_text().splitlines()),
    )


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Start, Start]:
    """The first start, and the second."""
    directory = tmp_path_factory.mktemp("starts")
    return start(directory / "first"), start(directory / "second")


NOT_NEEDED = [
    "tensorflow",
    "tensorflow_datasets",
    "datasets",
    "pandas",
    "transformers",
    "torch",
    "wandb",
    "mlflow",
    "matplotlib",
    "sqlalchemy",
    "fastapi",
    "sympy",
    "google.cloud.storage",
    "tunix.distillation",
    "tunix.rl.agentic",
]


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_default_run_does_not_import(module: str, starts: tuple[Start, Start]) -> None:
    assert module not in starts[0].modules


def test_no_program_is_compiled_twice(starts: tuple[Start, Start]) -> None:
    # The optimiser's state, sampler for training and for evaluation, reference, update, the schedule; and one more.
    assert starts[0].timings["programs"]["compiled"] <= 7


def test_a_second_start_compiles_nothing(starts: tuple[Start, Start]) -> None:
    first, second = (told.timings["programs"] for told in starts)
    assert first["from_cache"] == 0
    assert second == {"compiled": 0, "from_cache": first["compiled"], "seconds": second["seconds"]}


def test_nor_does_a_run_that_goes_on(tmp_path: Path) -> None:
    whole = start(tmp_path / "run", "training.num_batches=2", "training.save_interval_steps=1")
    shutil.rmtree(tmp_path / "run" / "run" / "checkpoints" / "step_000002")
    resumed = start(
        tmp_path / "run", "training.num_batches=2", "training.save_interval_steps=1", "training.resume=true"
    )
    assert "resumed from the checkpoint of step 1" in resumed.log
    assert resumed.timings["programs"]["from_cache"] == whole.timings["programs"]["compiled"]
    assert resumed.timings["programs"]["compiled"] <= 1  # an operation on the number of steps that were read


def test_both_foresee_the_same_programs(starts: tuple[Start, Start]) -> None:
    """The optimiser's state, two samplers, the reference pass, the update, the learning rate."""
    assert len(starts[0].foreseen) == 6
    assert starts[1].foreseen == starts[0].foreseen


def test_every_phase_is_told(starts: tuple[Start, Start]) -> None:
    phases = set(starts[0].timings["phases_s"])
    assert phases >= {"imports", "configuration", "checks", "data", "model", "learner", "tracing", "first step"}
    assert "evaluation" in phases
    assert "time: " in starts[0].log
    assert starts[0].timings["total_s"] == pytest.approx(sum(starts[0].timings["phases_s"].values()), abs=0.05)
