"""The recipe for Slurm on a real Slurm of one node, and Hydra's submitit launcher there and without a cluster.

The cluster is this machine, with a configuration, ports and state of its own; it needs root and Debian's `slurm-wlm`.
"""

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

from agent_tunix.tracking import read_rows

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Slurm of one node; the environment in which its commands reach it."""
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
            daemon.wait(timeout=30)


def _ask(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()


def _wait_for(what: str, is_there: Callable[[], bool], directory: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if is_there():
            return
        time.sleep(0.5)
    logs = "\n".join((directory / f"{name}.log").read_text() for name in DAEMONS)
    raise AssertionError(f"Slurm has not come to {what}\n{logs}")


def last_step(run: Path) -> int:
    return int(read_rows(run / "metrics.jsonl")[-1]["step"])


@needs_slurm
def test_the_batch_script_makes_one_run_of_two_tasks(cluster: dict[str, str], tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "launch" / "slurm.sbatch")
    subprocess.run(
        ["sbatch", "--wait", script, *SMALL_RUN, "model.mesh_shape=[2,1,1]"],
        check=True,
        env={**cluster, "RUN_DIRECTORY": str(tmp_path / "run")},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert last_step(tmp_path / "run") == NUM_STEPS
    assert "process 0 of 2" in (tmp_path / "run" / "train.log").read_text()


def sweep(launcher: str, environment: dict[str, str], directory: Path, *overrides: str) -> None:
    """Two runs, as jobs."""
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "run_training.py"), "--multirun", f"hydra/launcher={launcher}"),
            *("hydra.launcher.timeout_min=10", f"hydra.sweep.dir={directory / 'sweep'}", "seed=0,1"),
            *(*SMALL_RUN, *overrides),
        ],
        check=True,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


@needs_submitit
def test_a_sweep_runs_in_processes_of_this_machine(tmp_path: Path) -> None:
    sweep("submitit_local", dict(os.environ), tmp_path)
    assert [last_step(tmp_path / "sweep" / job) for job in ("0", "1")] == [NUM_STEPS, NUM_STEPS]


@needs_slurm
@needs_submitit
def test_a_sweep_of_runs_of_two_tasks_each(cluster: dict[str, str], tmp_path: Path) -> None:
    sweep(
        "submitit_slurm",
        cluster,
        tmp_path,
        "hydra.launcher.tasks_per_node=2",
        "distributed=slurm",
        "model.mesh_shape=[2,1,1]",
    )
    for job in ("0", "1"):
        assert last_step(tmp_path / "sweep" / job) == NUM_STEPS
        assert "process 0 of 2" in (tmp_path / "sweep" / job / "train.log").read_text()
