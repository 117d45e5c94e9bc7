"""The recipes of examples/launch: what they start on each host, and real runs where this machine has what they need."""

import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.small_run import NUM_STEPS, SMALL_RUN
from tests.test_docs import PAGES, first_value, read_blocks, shell_commands

from agent_tunix.config.adapter_ranks import adapter_rank_problems
from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.schema import Config
from agent_tunix.planning.known_models import plannable_architecture
from agent_tunix.planning.memory import plan_memory
from agent_tunix.planning.mesh_choice import Devices, choose_mesh_shape, shape_problems
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking import read_rows

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "launch"
# Programs of other hosts. The launchers run what they are given here; `agent-tunix` writes its arguments to a file.
LAUNCHER = 'until [[ $1 == agent-tunix || $1 == bash ]]; do shift; done; "$@"'
CLOUD = (
    "for word; do case $word in"
    ' --command=*"agent-tunix train"*) eval "agent-tunix train${word##*agent-tunix train}" ;; esac; done'
)
TELL = 'printf \'%s\\0\' "$@" > "$OUT/$$"'
PROGRAMS = {
    "agent-tunix": TELL,
    "python": TELL,
    "sbatch": "export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=1 SLURM_JOB_NODELIST=all;"
    ' while [[ $1 == --* ]]; do shift; done; bash "$@"',
    "ssh": 'bash -c "$2"',
    "mpirun": LAUNCHER,
    "srun": LAUNCHER,
    "gcloud": CLOUD,
    "xpk": CLOUD,
    "shell": 'bash -c "$2"',
    "scontrol": "printf 'host0\\nhost1\\n'",
    # It waits for its end, as a server does.
    "vllm": 'printf \'%s\\0\' "$CUDA_VISIBLE_DEVICES" "$@" > "$OUT.$$"; sleep 60 & trap "kill $!" TERM; wait',
}
GKE = {"CLUSTER": "c", "PROJECT": "p", "ZONE": "z", "TPU_TYPE": "v5litepod-16", "IMAGE": "image"}


def told_by(command: str, directory: Path, environment: dict[str, str], waits_for: int = 0) -> list[list[str]]:
    """The arguments of each program that a command of shell starts on the hosts, which are all this machine.

    `agent-tunix` waits for so many servers.
    """
    programs, out = directory / "programs", directory / "out"
    for made in (programs, out):
        made.mkdir()
    wait = f'while [ $(ls -d "$OUT".* | wc -l) -lt {waits_for} ]; do sleep 0.01; done; ' if waits_for else ""
    for name, script in (PROGRAMS | {"agent-tunix": wait + TELL}).items():
        (programs / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-c", command],
        check=True,
        cwd=directory,
        env={**os.environ, **environment, "OUT": str(out), "PATH": path},
    )
    return [file.read_text().split("\0")[:-1] for file in out.iterdir()]


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
    command = shlex.join([str(RECIPES / recipe), *arguments, "seed=3", "prompt.system='two words'"])
    told = told_by(command, tmp_path, environment)
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


@pytest.mark.parametrize("is_slurm", [True, False])
@pytest.mark.parametrize("rank", [16, 0])
def test_vllm_samples_on_another_host(is_slurm: bool, rank: int, tmp_path: Path) -> None:
    place = {} if is_slurm else {"SAMPLER": "host1", "SSH": "shell"}
    recipe = f"{'sbatch ' if is_slurm else ''}{RECIPES / 'vllm_hosts.sh'} model.lora_rank={rank}"
    environment = {"MODEL": "some/model", "GPUS": "2", "RANK": str(rank), "RUN_DIRECTORY": str(tmp_path / "run")}
    (words,) = told_by(recipe, tmp_path, environment | place, waits_for=2)
    config = compose_overrides([word for word in words[1:] if not word.startswith("hydra.")])
    assert config.engine.name == "vllm"
    assert config.engine.urls == ["http://host1:8000", "http://host1:8001"]
    assert config.engine.adapter_directory == str(tmp_path / "run" / "engine")
    assert not list(adapter_rank_problems(config))
    servers = sorted(file.read_text().split("\0")[:-1] for file in tmp_path.glob("out.*"))
    assert [(server[0], server[-1]) for server in servers] == [("0", "8000"), ("1", "8001")]
    assert all(("--enable-lora" in server) is bool(rank) for server in servers)
    assert all({"some/model", "processed_logprobs"} <= set(server) for server in servers)
    assert (tmp_path / "run" / "engine.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("recipe", sorted(file.name for file in RECIPES.iterdir()))
def test_a_recipe_can_be_run(recipe: str) -> None:
    subprocess.run(["bash", "-n", str(RECIPES / recipe)], check=True)
    assert os.access(RECIPES / recipe, os.X_OK)


# --- what the documentation says --------------------------------------------------------------------------------------

# The devices of a command, and those of a process: of a task of Slurm, of a rank, of a host, of a TPU host.
DEVICES: dict[str, Callable[["re.Match[str]"], tuple[int, int]]] = {
    r"vllm_hosts": lambda found: (8, 8),  # the other host samples
    r"nodes=(\d+)\b.*tasks.per.node=(\d+)": lambda found: (int(found[1]) * int(found[2]), 1),
    r"PROCESSES=(\d+)": lambda found: (int(found[1]), 1),
    r'HOSTS="([^"]*)"': lambda found: (8 * len(found[1].split()), 8),
    r"TPU_TYPE=v5litepod-(\d+)|TPU=": lambda found: (int(found[1] or 16), 4),
}


def documented_commands() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each command that starts a run elsewhere."""
    for page in PAGES:
        for block in read_blocks(page):
            if block.reason_not_to_run in ("cluster", "tpu"):
                for number, command in enumerate(shell_commands(block)):
                    if "pip install" not in command:
                        yield f"{page.name}:{block.line + number}", command
    for script in sorted(RECIPES.iterdir()):  # the usage in its first lines
        usage = " ".join(re.findall(r"^#   (.*?) ?\\?$", script.read_text(), flags=re.MULTILINE))
        for name, value in {
            script.name: f"examples/launch/{script.name}",
            "RUN_DIRECTORY": "/run",
            "WORKLOAD": "run",
        }.items():
            usage = usage.replace(name, value)
        yield script.name, usage


COMMANDS = dict(documented_commands())


def devices_of(command: str) -> Devices:
    found = next((make(match) for form, make in DEVICES.items() if (match := re.search(form, command))), (1, 1))
    return Devices(*found, memory=80 * 10**9)


def check_mesh(config: Config, devices: Devices) -> None:
    """Check that the mesh has all devices, and divides the model and the rows of a micro-batch."""
    architecture = plannable_architecture(config.model)
    rows = micro_batch_size(config) * config.grpo.num_generations
    shape = read_mesh_shape(config.model.mesh_shape)
    if shape is None:
        shape = choose_mesh_shape(
            architecture, lambda tried: plan_memory(architecture, config, 2, tried).total, devices, num_rows=rows
        ).shape
    assert shape.size == devices.count
    assert shape_problems(architecture, shape) == []
    assert rows % shape.row_shards == 0


@pytest.mark.parametrize("place", COMMANDS)
def test_a_documented_recipe_passes_the_checks_of_a_run(place: str, tmp_path: Path) -> None:
    command = COMMANDS[place]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "my_rewards.py").write_text("def reward(response):\n    return 1.0\n")
    told = told_by(command, tmp_path, {})
    assert told
    for words in told:
        overrides = [word for word in words[1:] if not re.match(r"--|\+?hydra[./]", word)]
        if "--multirun" in words:  # the first job
            overrides = [first_value(override) for override in overrides]
        config = compose_overrides(overrides)
        preflight(config, tmp_path)
        if "seed=0,1,2" not in words:  # the jobs of a sweep have a device each
            check_mesh(config, devices_of(command))


def test_two_machines_of_eight_gpus_have_recipes() -> None:
    counts = [devices_of(command).count for command in COMMANDS.values()]
    assert counts.count(16) >= 4


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
