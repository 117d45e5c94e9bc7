"""Whole runs on meshes, one after the other; `test_meshes.py` makes them with 8 virtual devices.

python -m tests.training.mesh_runs DIRECTORY
"""

import logging
import shutil
import sys
from pathlib import Path

from agent_tunix.config.compose import compose_overrides
from agent_tunix.training.exporting import export_run
from agent_tunix.training.preflight import Checked, preflight
from agent_tunix.training.run import train
from agent_tunix.training.sft import train_supervised
from agent_tunix.training.targets import check_supervised
from agent_tunix.training.trained_policy import find_run
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
METHODS = {
    "grpo": (),
    "lora": ("model.lora_rank=4", "optimizer.learning_rate=1e-3", "training.num_batches=2"),
    "sft": (
        "training.batch_size=8",
        "training.micro_batch_size=8",
        "sft.max_target_length=96",
        "training.num_batches=2",
    ),
}
# Optimisers whose state has not the shapes of the weights.
OPTIMIZERS = ("adafactor", "muon")


def take_run(root: Path, method: str, mesh_shape: str, *overrides: str) -> None:
    """Make one run, or the rest of one."""
    config = compose_overrides([*COMMON, *METHODS[method], f"model.mesh_shape={mesh_shape}", *overrides])
    checked: Checked = preflight(config, root.parent)
    if method == "sft":
        train_supervised(check_supervised(checked), root)
    else:
        train(checked, root)


def main() -> None:
    """Make them all."""
    directory = Path(sys.argv[1])
    logging.getLogger("agent_tunix").setLevel(logging.WARNING)
    for method in METHODS:
        take_run(directory / method / "alone", method, "[1,1,1]")
    take_run(directory / "grpo" / "divided", "grpo", "auto")
    for method in ("lora", "sft"):
        take_run(directory / method / "divided", method, "[2,2,2]")
    # A copy of a run, back at step 2, that goes on on another mesh.
    shutil.copytree(directory / "grpo" / "alone", directory / "grpo" / "resumed")
    shutil.rmtree(directory / "grpo" / "resumed" / "checkpoints" / "step_000004")
    take_run(directory / "grpo" / "resumed", "grpo", "[2,2,2]", "training.resume=true")
    for kind in OPTIMIZERS:
        groups = "optimizer.groups.norms={match: norm, learning_rate_scale: 0.5}"
        optimizer = (f"optimizer={kind}", groups, "training.num_batches=1", "grpo.beta=0")
        take_run(directory / kind, "grpo", "[2,2,2]", *optimizer)
    export_run(find_run(directory / "lora" / "divided"), directory / "exported")


if __name__ == "__main__":
    main()
