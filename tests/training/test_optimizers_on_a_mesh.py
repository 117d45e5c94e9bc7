"""Optimisers whose state has not the shapes of the weights train on several devices, from the command line on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_run import SMALL_RUN


@pytest.mark.parametrize("kind", ["adafactor", "muon"])
def test_a_mesh_of_two_by_two_trains(tmp_path: Path, kind: str) -> None:
    overrides = [
        *SMALL_RUN,
        f"optimizer={kind}",
        "optimizer.groups.norms={match: norm, learning_rate_scale: 0.5}",
        "training.num_batches=2",
        "training.micro_batch_size=2",
        "model.mesh_shape=[2,2]",
        "distributed.platform=cpu",
        "distributed.num_cpu_devices=4",
        "tracking.progress=none",
        f"hydra.run.dir={tmp_path}",
    ]
    command = [sys.executable, "-m", "agent_tunix", "train", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(row["policy/update_norm/rest"] > 0 for row in rows[1:])
