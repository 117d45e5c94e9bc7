"""The recipes of examples/launch: what they start on each host, and real runs where this machine has what they need."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.small_run import NUM_STEPS, SMALL_RUN

from agent_tunix.config.compose import compose_overrides
from agent_tunix.tracking import read_rows

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "launch"
# Programs of other hosts. The launchers run what they are given here; `agent-tunix` writes its arguments to a file.
LAUNCHER = 'while [ "$1" != agent-tunix ]; do shift; done; "$@"'
CLOUD = 'for word; do case $word in --command=*) eval "agent-tunix train${word##*agent-tunix train}" ;; esac; done'
PROGRAMS = {
    "agent-tunix": 'printf \'%s\\0\' "$@" > "$OUT/$$"',
    "mpirun": LAUNCHER,
    "srun": LAUNCHER,
    "gcloud": CLOUD,
    "xpk": CLOUD,
    "shell": 'bash -c "$2"',
}
GKE = {"CLUSTER": "c", "PROJECT": "p", "ZONE": "z", "TPU_TYPE": "v5litepod-16", "IMAGE": "image"}


@pytest.mark.parametrize(
    ("recipe", "arguments", "environment", "mode", "process_ids"),
    [
        ("tpu_pod.sh", ["/shared/run"], {"TPU": "slice", "ZONE": "zone"}, "auto", [None]),
        ("gke_xpk.sh", ["work", "/shared/run"], GKE, "auto", [None]),
        ("mpi.sh", ["/shared/run"], {"MPIRUN_OPTIONS": "--oversubscribe -x A"}, "mpi", [None]),
        ("slurm.sbatch", [], {"RUN_DIRECTORY": "/shared/run"}, "slurm", [None]),
        ("ssh_hosts.sh", ["/shared/run"], {"HOSTS": "host0 host1", "SSH": "shell"}, "manual", [0, 1]),
    ],
)
def test_each_host_is_told_to_run_what_composes(
    recipe: str,
    arguments: list[str],
    environment: dict[str, str],
    mode: str,
    process_ids: list[int | None],
    tmp_path: Path,
) -> None:
    assert recipe in os.listdir(RECIPES)
    for name, script in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(
        [str(RECIPES / recipe), *arguments, "seed=3", "prompt.system='two words'"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, **environment, "OUT": str(out), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    told = [file.read_text().split("\0")[:-1] for file in out.iterdir()]
    assert all({"train", "hydra.run.dir=/shared/run"} <= set(words) for words in told)
    configs = [compose_overrides([word for word in words[1:] if not word.startswith("hydra.")]) for words in told]
    assert {(config.distributed.mode, config.seed, config.prompt.system) for config in configs} == {
        (mode, 3, "two words")
    }
    assert all(config.training.resume for config in configs)
    found = [config.distributed for config in configs]
    assert sorted((one.process_id for one in found), key=str) == process_ids
    if mode == "manual":
        assert {(one.num_processes, one.coordinator_address) for one in found} == {(2, "host0:29500")}


@pytest.mark.parametrize("recipe", sorted(file.name for file in RECIPES.iterdir()))
def test_a_recipe_can_be_run(recipe: str) -> None:
    subprocess.run(["bash", "-n", str(RECIPES / recipe)], check=True)
    assert os.access(RECIPES / recipe, os.X_OK)


# --- real runs -------------------------------------------------------------------------------------------------------

TWO_TASKS = "model.mesh_shape=[2,1,1]"
# One step, and no evaluation on the way.
ONE_STEP = ("training.num_batches=1", "training.eval_every_n_steps=0", "evaluation.num_samples=4")
DAEMONS = ("slurmctld", "slurmd")

needs_submitit = pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins") is None
    or importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None,
    reason="the extra `slurm` is not installed",
)
needs_slurm = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(program) is None for program in (*DAEMONS, "sbatch")),
    reason="a Slurm of one's own needs root and slurmctld, slurmd and sbatch",
)


def start(command: list[str], directory: Path, environment: dict[str, str]) -> None:
    subprocess.run(command, check=True, env=environment, cwd=directory, stdin=subprocess.DEVNULL, timeout=600)


def last_step(run: Path) -> int:
    return int(read_rows(run / "metrics.jsonl")[-1]["step"])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_one_run_over_the_ranks_of_mpirun(tmp_path: Path) -> None:
    options = {"MPIRUN_OPTIONS": "--allow-run-as-root --oversubscribe"}
    start([str(RECIPES / "mpi.sh"), str(tmp_path / "run"), *SMALL_RUN, TWO_TASKS], tmp_path, {**os.environ, **options})
    assert last_step(tmp_path / "run") == NUM_STEPS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Slurm of one node, which is this machine; the environment in which its commands reach it."""
    directory = tmp_path_factory.mktemp("slurm")
    host = socket.gethostname().partition(".")[0]
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        ports = first.getsockname()[1], second.getsockname()[1]
    (directory / "slurm.conf").write_text(
        f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    for name in ("state", "spool"):
        (directory / name).mkdir()
    environment = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}
    # In the foreground, so that they end with the test. Two processors are said to be there whatever the machine has.
    daemons = [
        subprocess.Popen([shutil.which(name) or name, "-D", *options], env=environment, stdin=subprocess.DEVNULL)
        for name, options in zip(DAEMONS, ([], ["--conf", "CPUs=2"]), strict=True)
    ]
    try:
        _wait_for("an idle node", lambda: _ask(environment, "sinfo", "-h", "-o", "%T") == "idle", directory)
        yield environment
        # What a job leaves running when slurmd ends would stay for good.
        _wait_for("no job", lambda: not _ask(environment, "squeue", "-h"), directory)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)


def _ask(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()


def _wait_for(what: str, is_there: Callable[[], bool], directory: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if is_there():
            return
        time.sleep(0.5)
    logs = "\n".join((directory / f"{name}.log").read_text() for name in DAEMONS)
    raise AssertionError(f"Slurm has not come to {what}\n{logs}")


@pytest.mark.slow
@needs_slurm
def test_the_batch_script_makes_one_run_of_two_tasks(cluster: dict[str, str], tmp_path: Path) -> None:
    command = ["sbatch", "--wait", str(RECIPES / "slurm.sbatch"), *SMALL_RUN, TWO_TASKS]
    start(command, tmp_path, {**cluster, "RUN_DIRECTORY": str(tmp_path / "run")})
    assert last_step(tmp_path / "run") == NUM_STEPS
    assert "process 0 of 2" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.slow
@needs_submitit
@pytest.mark.parametrize("launcher", ["submitit_local", pytest.param("submitit_slurm", marks=needs_slurm)])
def test_a_sweep_by_submitit(launcher: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    is_slurm = launcher == "submitit_slurm"
    environment = request.getfixturevalue("cluster") if is_slurm else dict(os.environ)
    tasks = ("hydra.launcher.tasks_per_node=2", "distributed=slurm", TWO_TASKS) if is_slurm else ()
    command = [sys.executable, str(ROOT / "run_training.py"), "--multirun", f"hydra/launcher={launcher}"]
    places = ["hydra.launcher.timeout_min=10", f"hydra.sweep.dir={tmp_path / 'sweep'}", "seed=5"]
    start([*command, *places, *SMALL_RUN, *ONE_STEP, *tasks], tmp_path, environment)
    assert last_step(tmp_path / "sweep" / "0") == 1
