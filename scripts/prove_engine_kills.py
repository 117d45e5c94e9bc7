"""One of two sampling processes is killed at a random moment of a run: no step is lost or changed, and none hangs."""

import random
import tempfile
from pathlib import Path
from typing import Any

from tests.small_run import NUM_STEPS
from tests.training.engine_runs import ENGINE, OVERRIDES, Killer, rollouts, sampling_processes
from tests.training.support import small_run

from agent_tunix.runs.preflight import preflight
from agent_tunix.training.train import train

_LONGEST_STEP_S = 1.0


def prove_kills(count: int, seed: int = 0) -> dict[str, Any]:
    """Compare runs in which a process is killed with one that is left alone.

    Args:
        count: Number of runs with a kill.
        seed: Seed of the moments.
    """
    draw, killed = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as directory:
        whole = _run(Path(directory) / "whole")
        for number in range(count):
            root = Path(directory) / f"run_{number}"
            killer = Killer(root, draw.randint(1, NUM_STEPS), draw.uniform(0.0, _LONGEST_STEP_S))
            assert rollouts(_run(root, killer)) == rollouts(whole), f"run {number} has other completions"
            killed += len(killer.killed)
    return {"runs": count, "killed": killed}


def _run(root: Path, *callbacks: Killer) -> Path:
    train(preflight(small_run(*OVERRIDES, *ENGINE, "engine.num_processes=2"), root.parent), root, callbacks=callbacks)
    assert not sampling_processes(root), "a sampling process has outlived its run"
    return root


if __name__ == "__main__":
    print(prove_kills(10))
