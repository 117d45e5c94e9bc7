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
from tests.rewards.execution.leftovers import wait_until, workers_and_descendants
from tests.tiers import slow_after

DIRECTORY = Path(__file__).parent
# Long enough for calls that do not hang, on a busy machine.
LIMIT_S = 2.0


def host(fault: str = "", **limits: Any) -> HostedEnvironment:
    recipe = EnvironmentRecipe("faulty.py:Faulty", {"fault": fault}, working_directory=DIRECTORY)
    traits = resolve_environment(str(recipe.spec), working_directory=DIRECTORY).traits
    return HostedEnvironment(recipe, traits, **limits)


def test_an_episode_runs_in_another_process() -> None:
    with host() as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"))
        assert result.score is not None
        assert result.score.value == 1.0
        assert int(result.calls[0].result.text) != os.getpid()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("forge:tool", "wrote to the connection with the trainer"),
        ("hang:tool", "work took longer than 2 s"),
        ("raise:score", "broken"),
    ],
)
def test_a_fault_ends_its_episode_and_the_next_one_begins(fault: str, error: str) -> None:
    with host(fault, timeout_s=LIMIT_S) as hosted:
        for _ in range(2):
            result = run_episode(hosted.open(), script(call("work"), "done"))
            assert result.stop_reason is StopReason.ERROR
            assert error in result.error


@pytest.mark.parametrize("fault", slow_after(1, ["exit:init", "hang:init", "raise:init"]))
def test_a_constructor_that_fails_is_an_error_of_opening(fault: str) -> None:
    with host(fault, timeout_s=LIMIT_S) as hosted, pytest.raises(EnvironmentFailedError):
        hosted.open()


def test_a_worker_that_cannot_load_the_environment_is_ended(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}:\n    raise ImportError('not here')\n"
        "class Own:\n    def reset(self):\n        return 'ready'\n    def look(self) -> str:\n        'Look.'\n"
    )
    given = resolve_environment(f"{tmp_path}/elsewhere.py:Own")
    recipe = EnvironmentRecipe(f"{tmp_path}/elsewhere.py:Own")
    before = workers_and_descendants()
    with HostedEnvironment(recipe, given.traits) as hosted:
        for _ in range(2):
            with pytest.raises(EnvironmentFailedError, match="not here"):
                hosted.open()
        wait_until(lambda: len(workers_and_descendants()) == len(before) + 1)  # the one that starts workers


@pytest.mark.parametrize("fault", slow_after(1, ["raise:tool", "memory:tool"]))
def test_a_tool_that_fails_is_told_to_the_model(fault: str) -> None:
    with host(fault, memory_mb=256) as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"))
    assert result.stop_reason is StopReason.FINISHED
    assert result.calls[0].result.outcome is CallOutcome.TOOL_ERROR


def test_a_flood_is_cut_before_it_is_sent() -> None:
    with host("flood:tool") as hosted:
        result = run_episode(hosted.open(), script(call("work"), "done"), max_result_chars=50)
    assert result.calls[0].result.outcome is CallOutcome.TOO_LONG


def test_an_episode_whose_worker_died_says_so() -> None:
    with host("exit:tool") as hosted:
        one, other = hosted.open(), hosted.open()
        one.reset({}, 0)
        with raises(EnvironmentFailedError, "worker_died"):
            one.call("work", {})
        with raises(EnvironmentFailedError, "worker_died", "had ended before: it exited", "reset was not called"):
            other.reset({}, 0)
        other.close()


@pytest.mark.slow
def test_the_checks_name_the_tool_that_hangs() -> None:
    with host("hang:tool", timeout_s=LIMIT_S) as hosted:
        report = check_environment(hosted)
    assert not report.passed
    assert any("work took longer than 2 s" in finding.detail for finding in report.findings)
