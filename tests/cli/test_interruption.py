"""Signals at any moment of a program: while it imports, compiles, trains and ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from tests.small_run import SMALL_RUN

from agent_tunix.overrides import assign
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.tracking.outcome import RunStatus, read_outcome

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "run_training.py": [str(ROOT / "run_training.py")],
    "python -m agent_tunix": ["-m", "agent_tunix", "rewards", "list"],
}

# Says that it is there, then does one call for minutes, outside Python: as a compilation, it runs no handler of Python.
BUSY = """
import hashlib, os, sys
from agent_tunix.cli import hydra_programs
from agent_tunix.evaluation import checkpoint
from agent_tunix.grpo.step import GrpoTrainer

def compile(*args, **kwargs):
    os.write(1, b"busy\\n")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

GrpoTrainer.take_step = compile
checkpoint.evaluate_checkpoint = compile
getattr(hydra_programs, sys.argv[1])(sys.argv[2:])
"""

# Sends itself a signal in a step. Its report says how far the run was, and ends without mercy.
REPORTED = """
import os, sys
from agent_tunix.cli import hydra_programs
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.runs import reporter

take_step = GrpoTrainer.take_step
number = int(sys.argv[1])

def signalled(self, step, *args):
    if step == 3:
        os.kill(os.getpid(), number)
    return take_step(self, step, *args)

def write_report(*args, **kwargs):
    os.write(2, b"THE REPORT")
    os.kill(os.getpid(), 9)

GrpoTrainer.take_step = signalled
reporter.write_report = write_report
hydra_programs.train(sys.argv[2:])
"""


# Forks a process as an inline reward may, and sends Ctrl-C to both, as a terminal does.
FORKED = """
import multiprocessing, os, signal, time
from agent_tunix.runs.stopping import StopRequest
from agent_tunix.startup.interruption import ends_at_once

def wait():
    ready.wait()
    time.sleep(20)

with ends_at_once("at once"), StopRequest() as stop:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(4)
    processes = [context.Process(target=wait) for _ in range(3)]
    for process in processes:
        process.start()
    ready.wait()
    os.killpg(0, signal.SIGINT)
    while stop.signal_number is None:
        time.sleep(0.01)
    time.sleep(0.1)
    print(stop.signal_number, *(process.exitcode for process in processes))
    for process in processes:
        process.terminate()
        process.join()
"""


def overrides_of(root: Path, *more: str) -> list[str]:
    return [*SMALL_RUN, "tracking.progress=none", "evaluation.num_samples=0", *more, assign("hydra.run.dir", str(root))]


def wait_for(stream: IO[bytes], text: bytes) -> None:
    """Read lines up to one with a text."""
    while text not in (line := stream.readline()):
        assert line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("run_training.py", "agent_tunix.early_interrupt"),
        ("python -m agent_tunix", "agent_tunix.rewards.registry"),
    ],
)
def test_ctrl_c_while_importing_is_quiet(program: str, module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", *PROGRAMS[program]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stderr is not None
        wait_for(process.stderr, f" {module}\n".encode())
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(timeout=60) in (-signal.SIGINT, 130)
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_a_second_signal_ends_a_compilation_at_once(tmp_path: Path) -> None:
    number = signal.SIGTERM
    command = [sys.executable, "-c", BUSY, "train", *overrides_of(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        wait_for(process.stdout, b"busy\n")
        process.send_signal(number)
        wait_for(process.stderr, b"once more stops at once")
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert b"resume from the last checkpoint" in process.stderr.read()
    assert read_outcome(tmp_path / "run").status is RunStatus.STOPPED


def test_processes_that_a_program_forks_do_not_count_as_a_second_signal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, cwd=tmp_path, timeout=60, start_new_session=True
    )
    assert (done.returncode, done.stdout) == (0, f"{int(signal.SIGINT)} None None None\n"), done.stderr


@pytest.mark.slow
def test_ctrl_c_in_an_evaluation_has_its_own_text(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUSY, "evaluate", f"model.path={EMBEDDED_MODEL}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        wait_for(process.stdout, b"busy\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        errors = process.stderr.read().decode()
    assert "Interrupted; the evaluation is not complete. Run the same command again" in errors
    assert "training.resume" not in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_checkpoint_status_and_message_come_before_the_report(tmp_path: Path) -> None:
    number = signal.SIGTERM
    root = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", REPORTED, str(int(number)), *overrides_of(root, "tracking.report=true")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    message, found, _ = done.stderr.partition("THE REPORT")
    assert found, done.stderr
    assert f"stopped by signal {int(number)} after step 3. The checkpoint of step 3 is saved; resume with:" in message
    assert json.loads((root / "status.json").read_text())["status"] == "stopped"
    assert Checkpoints(root / "checkpoints", 2).steps() == [3]


@pytest.mark.slow
def test_a_terminal_that_closes_leaves_a_checkpoint(tmp_path: Path) -> None:
    """Its program can neither write to the terminal nor read from it from then on."""
    root = tmp_path / "run"
    command = [sys.executable, "-m", "agent_tunix", "train", *overrides_of(root, "training.num_batches=2000")]
    command.remove("tracking.progress=none")
    terminal, inside = os.openpty()
    process = subprocess.Popen(["setsid", "--ctty", *command], stdin=inside, stdout=inside, stderr=inside)
    os.close(inside)
    seen = b""
    while not (root / "metrics.jsonl").exists() or (root / "metrics.jsonl").read_bytes().count(b"\n") < 2:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            raise AssertionError(seen.decode(errors="replace")) from None
    os.close(terminal)
    assert process.wait() in (128 + signal.SIGHUP, 1)
    assert read_outcome(root).status is RunStatus.STOPPED
    assert Checkpoints(root / "checkpoints", 2).steps()
