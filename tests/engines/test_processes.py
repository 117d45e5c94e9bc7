"""Sampling processes end with the run, whatever happens to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_tunix.engines.processes import SamplingProcesses
from agent_tunix.errors import EngineError
from tests.raising import raises

MISSING = Path("/nonexistent/model")


def test_a_process_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    with SamplingProcesses(MISSING, 1, [], tmp_path) as processes:
        assert processes.reason_gone() is None
        with raises(EngineError, "sampling_process_failed") as caught:
            processes.urls(60)
        assert "sampler_0.log" in str(processes.reason_gone())
    assert str(MISSING) in str(caught.value)
    assert "sampler_0.log" in str(caught.value)


def test_a_process_that_does_not_listen_in_time_is_ended(tmp_path: Path) -> None:
    with SamplingProcesses(MISSING, 2, [], tmp_path) as processes, raises(EngineError, "sampling_process_failed"):
        processes.urls(0)
    assert not sampling(tmp_path)


@pytest.mark.slow
def test_processes_end_with_a_run_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from agent_tunix.engines.processes import SamplingProcesses\n"
        "found = SamplingProcesses(Path('embedded:tiny'), 1, ['--adapter-directory', sys.argv[1]], Path(sys.argv[1]))\n"
        "print('started', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"started\n"
        while not sampling(tmp_path):  # its command can be read a moment after it began
            time.sleep(0.05)
        os.kill(run.pid, signal.SIGKILL)
    while sampling(tmp_path):
        time.sleep(0.1)


def sampling(directory: Path) -> list[str]:
    """The processes whose command names a directory, besides this one."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve-policy" in words and os.fsencode(directory) in words:
            found.append(command.parent.name)
    return found
