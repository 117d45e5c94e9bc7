"""Environments in a worker process: limits, deaths, and what is left behind."""

import os
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import CallOutcome, EnvironmentRecipe, StopReason, resolve_environment, run_episode
from agent_tunix.environments.checks import check_environment
from agent_tunix.environments.hosting import HostedEnvironment
from agent_tunix.errors import EnvironmentFailedError
from tests.environments.support import call, script
from tests.raising import raises
from tests.tiers import slow_after

FAULTY = '''
import os
import sys
import time

from agent_tunix.execution.workers import frames


class Faulty:
    """An environment with a fault at a place of choice."""

    def __init__(self, fault=""):
        self.fault = fault
        self._act("init")

    def reset(self, **row):
        self._act("reset")
        return "ready"

    def work(self, number: int = 0) -> str:
        """Work."""
        print("working")
        self._act("tool")
        return "x" * 10_000_000 if self.fault == "flood" else f"{os.getpid()}"

    def get_reward(self):
        self._act("score")
        return 1.0

    def close(self):
        self._act("close")

    def _act(self, place):
        what, _, where = self.fault.partition(":")
        if where != place:
            return
        if what == "hang":
            while True:
                pass
        if what == "exit":
            os._exit(3)
        if what == "raise":
            raise RuntimeError("broken")
        if what == "quit":
            sys.exit(4)
        if what == "memory":
            bytearray(8 * 2**30)
        if what == "forge":  # a reply of another form, to whatever is open
            for number in range(200, 210):
                try:
                    os.write(number, frames.pack(("ok", 5)))
                except OSError:
                    pass
'''


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "faulty.py").write_text(FAULTY)
    return tmp_path


def host(directory: Path, fault: str = "", **limits: Any) -> HostedEnvironment:
    recipe = EnvironmentRecipe("faulty.py:Faulty", {"fault": fault}, working_directory=directory)
    traits = resolve_environment(str(recipe.spec), working_directory=directory).traits
    return HostedEnvironment(recipe, traits, **limits)


def test_an_episode_runs_in_another_process(directory: Path) -> None:
    with host(directory) as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"))
        assert result.score is not None
        assert result.score.value == 1.0
        assert int(result.calls[0].result.text) != os.getpid()


@pytest.mark.parametrize(
    ("fault", "error"),
    slow_after(
        4,
        [
            ("forge:tool", "wrote to its connection with the host"),
            ("hang:tool", "work took longer than 0.3 s"),
            ("exit:tool", "exited with status 3"),
            ("raise:score", "broken"),
            ("hang:reset", "reset took longer than 0.3 s"),
            ("hang:score", "the score took longer than 0.3 s"),
            ("hang:close", "close took longer than 0.3 s"),
            ("exit:reset", "exited with status 3"),
            ("raise:reset", "broken"),
            ("raise:close", "broken"),
            ("quit:reset", "SystemExit"),
        ],
    ),
)
def test_a_fault_ends_its_episode_and_the_next_one_begins(directory: Path, fault: str, error: str) -> None:
    with host(directory, fault, timeout_s=0.3) as hosted:
        for _ in range(2):
            result = run_episode(hosted.open(), script(call("work"), "done"))
            assert result.stop_reason is StopReason.ERROR
            assert error in result.error


@pytest.mark.parametrize("fault", slow_after(1, ["exit:init", "hang:init", "raise:init"]))
def test_a_constructor_that_fails_is_an_error_of_opening(directory: Path, fault: str) -> None:
    with host(directory, fault, timeout_s=0.3) as hosted, pytest.raises(EnvironmentFailedError):
        hosted.open()


@pytest.mark.parametrize("fault", slow_after(1, ["raise:tool", "quit:tool", "memory:tool"]))
def test_a_tool_that_fails_is_told_to_the_model(directory: Path, fault: str) -> None:
    with host(directory, fault, memory_mb=256) as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"))
    assert result.stop_reason is StopReason.FINISHED
    assert result.calls[0].result.outcome is CallOutcome.TOOL_ERROR


def test_a_flood_is_cut_before_it_is_sent(directory: Path) -> None:
    with host(directory, "flood") as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"), max_result_chars=50)
    assert result.calls[0].result.outcome is CallOutcome.TOO_LONG


def test_an_episode_whose_worker_died_says_so(directory: Path) -> None:
    with host(directory, "exit:tool") as hosted:
        one, other = hosted.open(), hosted.open()
        one.reset({}, 0)
        with raises(EnvironmentFailedError, "worker_died"):
            one.call("work", {})
        with raises(EnvironmentFailedError, "worker_died"):
            other.reset({}, 0)
        other.close()


@pytest.mark.slow
def test_the_checks_name_the_tool_that_hangs(directory: Path) -> None:
    with host(directory, "hang:tool", timeout_s=0.3) as hosted:
        report = check_environment(hosted)
    assert not report.passed
    assert any("work took longer than 0.3 s" in finding.detail for finding in report.findings)
