"""Whole runs on meshes, one after the other; `test_meshes.py` makes them with 8 virtual devices.

python -m tests.training.mesh_runs DIRECTORY
"""

import logging
import shutil
import sys
from pathlib import Path

from agent_tunix.config.compose import compose_overrides
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.exporting import export_run
from agent_tunix.training.train import train
from tests.small_run import SMALL_RUN

# 16 completions a step in two micro-batches; 6 problems of an evaluation, which no mesh of 8 devices divides.
COMMON = (
    *SMALL_RUN,
    "training.micro_batch_size=2",
    "training.save_interval_steps=2",
    "training.max_checkpoints_to_keep=2",
    "grpo.beta=0.04",
    "generation.max_generation_steps=12",
    "evaluation.num_samples=6",
    "evaluation.batch_size=6",
    "tracking.progress=none",
)
# Its state has not the shapes of the weights.
ADAFACTOR = (
    "optimizer=adafactor",
    "optimizer.groups.norms={match: norm, learning_rate_scale: 0.5}",
    "training.reward_function=conciseness",
    "training.num_batches=1",
    # Fewer programs to compile; the other runs have these.
    "training.micro_batch_size=null",
    "grpo.beta=0",
)


def make_run(root: Path, mesh_shape: str, *overrides: str) -> None:
    """Make one run, or the rest of one."""
    config = compose_overrides([*COMMON, f"model.mesh_shape={mesh_shape}", *overrides])
    train(preflight(config, root.parent), root)


def main() -> None:
    """Make them all."""
    directory = Path(sys.argv[1])
    logging.getLogger("agent_tunix").setLevel(logging.WARNING)
    make_run(directory / "alone", "[1,1,1]")
    make_run(directory / "divided", "auto")
    # A copy of a run, back at step 2, that goes on on one device.
    shutil.copytree(directory / "divided", directory / "resumed")
    shutil.rmtree(directory / "resumed" / "checkpoints" / "step_000004")
    make_run(directory / "resumed", "[1,1,1]", "training.resume=true")
    make_run(directory / "adafactor", "[2,2,2]", *ADAFACTOR)
    export_run(find_run(directory / "adafactor"), directory / "exported")


if __name__ == "__main__":
    main()
