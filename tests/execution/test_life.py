"""Processes that run code of others end with the process that started them, and leave nothing behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.execution.isolation import problems
from tests.execution.users import command_as, users

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))]

# It does what it can to outlive its parent, and then waits for ever.
_CLINGING = """
import ctypes, os, signal, time
def cling():
    libc = ctypes.CDLL(None)
    for option, value in ((1, 0), (36, 1), (4, 1)):
        libc.prctl(option, value, 0, 0, 0)
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    for action in (os.setsid, os.fork, os.setpgrp):
        try: action()
        except OSError: pass
    while True: time.sleep(1000)
"""
_TRAINERS = {
    "programs": f"from agent_tunix.execution.sandbox import run_program\n"
    f"run_program({_CLINGING!r} + 'cling()', timeout_s=900)",
    "tests of programs": f"from agent_tunix.execution.sandbox import run_program\n"
    f"run_program({_CLINGING!r} + 'def f(): cling()', checks=['f()'], timeout_s=900)",
    "uploads": f"from tests.rewards.isolation.uploads import score_upload\n"
    f"score_upload({_CLINGING!r} + 'def reward(completions, **kwargs): cling()', timeout_s=900.0)",
}
_ISOLATED = {"programs": 1, "tests of programs": 2, "uploads": 1}
_DEADLINE_S = 120.0


def wait_for(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not found():
        assert time.monotonic() < deadline, f"{what} did not come about in {_DEADLINE_S:g} s"
        time.sleep(0.02)


def status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = dict(line.partition(":\t")[::2] for line in lines)
    return {} if fields["State"].startswith(("Z", "X")) else fields


def descendants(pid: int) -> list[int]:
    parents = {int(entry): status(int(entry)).get("PPid") for entry in os.listdir("/proc") if entry.isdigit()}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == str(one)]
    return found[1:]


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("door", _TRAINERS)
def test_none_outlives_a_trainer_that_is_killed(door: str, user: str) -> None:
    with command_as(user, ["-c", _TRAINERS[door]]) as (command, environment, directory):
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as trainer:
            try:
                sleeping: list[int] = []

                def are_asleep() -> bool:
                    locked = [pid for pid in descendants(trainer.pid) if status(pid).get("Seccomp") == "2"]
                    sleeping[:] = locked
                    states = [status(pid).get("State", "")[:1] for pid in locked]
                    ignored = [status(pid).get("SigIgn", "0") for pid in locked]
                    return len(locked) == _ISOLATED[door] and set(states) == {"S"} and max(ignored) > "4" * 16

                wait_for(are_asleep, "a process that clings to life")
                started = descendants(trainer.pid)
            finally:
                trainer.send_signal(signal.SIGKILL)
        assert set(sleeping) <= set(started)
        wait_for(lambda: not any(status(pid) for pid in started), "the end of every process")
        wait_for(lambda: not os.listdir(directory), "an empty directory")
