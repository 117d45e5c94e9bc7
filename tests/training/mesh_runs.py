"""Run by `test_meshes.py` with 8 virtual devices: whole runs on meshes, one after the other.

    python -m tests.training.mesh_runs DIRECTORY

Each is left in a directory of its own, as on any machine.
"""

import logging
import shutil
import sys
from pathlib import Path

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config
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
    "lora": ("model.lora_rank=4", "optimizer.learning_rate=1e-3"),
    "sft": ("training.batch_size=8", "training.micro_batch_size=8", "sft.max_target_length=96"),
}
MESHES = {
    "grpo": ((1, 1, 1), (8, 1, 1), (1, 8, 1), (2, 2, 2), (1, 1, 2), (4, 1, 2)),
    "lora": ((1, 1, 1), (2, 2, 2), (4, 1, 2)),
    "sft": ((1, 1, 1), (8, 1, 1), (2, 2, 2)),
}


def name_of(method: str, shape: tuple[int, ...]) -> str:
    """Of a run's directory."""
    return f"{method}-{'x'.join(map(str, shape))}"


def take_run(root: Path, method: str, mesh_shape: str, *overrides: str) -> None:
    """One run, or the rest of one."""
    config = compose_overrides([*COMMON, *METHODS[method], f"model.mesh_shape={mesh_shape}", *overrides])
    checked: Checked = preflight(config, root.parent)
    if method == "sft":
        train_supervised(check_supervised(checked), root)
    else:
        train(checked, root)


def go_on_elsewhere(run: Path, to: Path, mesh_shape: str) -> None:
    """A copy of a run, back at step 2, that goes on on another mesh."""
    shutil.copytree(run, to)
    (last,) = (path for path in (to / "checkpoints").iterdir() if path.name.rpartition("_")[2].lstrip("0") == "4")
    shutil.rmtree(last)
    take_run(to, "grpo", mesh_shape, "training.resume=true")


def config_of(root: Path) -> Config:
    """What a run was started with."""
    return find_run(root).config


def main() -> None:
    """Take them all."""
    directory = Path(sys.argv[1])
    logging.getLogger("agent_tunix").setLevel(logging.WARNING)
    for method, shapes in MESHES.items():
        for shape in shapes:
            take_run(directory / name_of(method, shape), method, str(list(shape)).replace(" ", ""))
    take_run(directory / "auto", "grpo", "auto", "training.num_batches=1")
    go_on_elsewhere(directory / "grpo-2x2x2", directory / "resumed", "[8,1,1]")
    export_run(find_run(directory / "lora-2x2x2"), directory / "exported")


if __name__ == "__main__":
    main()
