"""A policy divided over eight devices is the policy of one, and is divided in fact."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# Little is computed, and most of the time goes into compiling.
FLAGS = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"


@pytest.mark.slow
def test_every_family_computes_the_same_on_a_mesh_and_none_of_it_lies_there_whole(tmp_path: Path) -> None:
    """Loss, gradients, shards of weights, adapters and moments, and the logits in the compiled program."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.policy.mesh_program", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": FLAGS},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["wrong"] == {}
    seen = str(answers["seen"])
    # Two key-value heads among eight devices, too.
    assert all(f"qwen3 {shape}" in seen for shape in ([1, 8], [8, 1, 1], [2, 2, 2]))
    assert all(family in seen for family in ("gemma2", "gemma3_text", "llama", "qwen2"))
