"""The files of examples/launch, as far as they run on one machine."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from tests.small_run import NUM_STEPS, SMALL_RUN

from agent_tunix.config.compose import compose_overrides
from agent_tunix.tracking import read_rows

RECIPES = Path(__file__).parents[2] / "examples" / "launch"
FAKE = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$OUT/$(basename "$0")"
"""


@pytest.mark.parametrize("recipe", sorted(file.name for file in RECIPES.iterdir()))
def test_a_recipe_is_a_script_that_bash_can_read(recipe: str) -> None:
    subprocess.run(["bash", "-n", str(RECIPES / recipe)], check=True)
    assert os.access(RECIPES / recipe, os.X_OK)


@pytest.mark.parametrize(
    ("recipe", "program", "arguments", "environment"),
    [
        ("tpu_pod.sh", "gcloud", ["/shared/run"], {"TPU": "slice", "ZONE": "zone"}),
        (
            "gke_xpk.sh",
            "xpk",
            ["work", "/shared/run"],
            {"CLUSTER": "c", "PROJECT": "p", "ZONE": "z", "TPU_TYPE": "v5litepod-16", "IMAGE": "image"},
        ),
    ],
)
def test_what_a_cloud_is_told_to_run_composes(
    recipe: str, program: str, arguments: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    fake = tmp_path / program
    fake.write_text(FAKE)
    fake.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(
        [str(RECIPES / recipe), *arguments, "seed=3", "prompt.system='two words'"],
        check=True,
        env={**os.environ, **environment, "OUT": str(out), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    (told,) = [
        line.removeprefix("--command=")
        for line in (out / program).read_text().splitlines()
        if line.startswith("--command=")
    ]
    # What a shell over there makes of it.
    words = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {told.rpartition('agent-tunix train')[2]}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    config = compose_overrides([word for word in words if not word.startswith("hydra.")])
    assert (config.distributed.mode, config.seed, config.prompt.system) == ("auto", 3, "two words")
    assert "hydra.run.dir=/shared/run" in words


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_one_run_over_the_ranks_of_mpirun(tmp_path: Path) -> None:
    subprocess.run(
        [str(RECIPES / "mpi.sh"), str(tmp_path / "run"), *SMALL_RUN, "model.mesh_shape=[2,1,1]"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "MPIRUN_OPTIONS": "--allow-run-as-root --oversubscribe"},
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["step"] == NUM_STEPS


def test_one_run_over_hosts_that_are_reached_one_by_one(tmp_path: Path) -> None:
    """Two hosts that are both this machine, with a shell in place of ssh."""
    shell = tmp_path / "shell"
    shell.write_text('#!/usr/bin/env bash\nexec bash -c "$2"\n')
    shell.chmod(0o755)
    subprocess.run(
        [str(RECIPES / "ssh_hosts.sh"), str(tmp_path / "run"), *SMALL_RUN, "model.mesh_shape=[2,1,1]"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "HOSTS": "127.0.0.1 127.0.0.1", "PORT": str(_free_port()), "SSH": str(shell)},
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["step"] == NUM_STEPS


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
