"""A policy divided over eight devices is the policy of one, and is divided in fact."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a process with eight virtual devices found."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.policy.mesh_program", str(tmp_path_factory.mktemp("mesh"))],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_family_computes_the_same_on_a_mesh_and_none_of_it_lies_there_whole(answers: dict[str, object]) -> None:
    """Loss, gradients, the shards of weights, adapters and moments, and the logits in the compiled program."""
    assert answers["wrong"] == {}


def test_meshes_of_all_proportions_were_tried(answers: dict[str, object]) -> None:
    """Two key-value heads among four and among eight devices, too."""
    seen = str(answers["seen"])
    assert all(f"qwen3 {shape}" in seen for shape in ([4, 2], [2, 4], [8, 1], [1, 8], [8, 1, 1], [2, 2, 2]))
    assert all(family in seen for family in ("gemma2", "gemma3_text", "llama", "qwen2"))
