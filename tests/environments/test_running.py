"""Environments of a run: chosen by row, used by several threads, released whatever happens."""

import threading
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import CallOutcome, EnvironmentRecipe
from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from tests.raising import raises

MEETING = '''\
"""Each call waits until another episode, in another process, calls too."""

import time
from pathlib import Path


class Meeting:
    def reset(self, name: str, folder: str):
        self.name, self.folder = name, Path(folder)

    def meet(self) -> str:
        """Wait for the other."""
        (self.folder / self.name).touch()
        while len(list(self.folder.glob("guest*"))) < 2:
            time.sleep(0.01)
        return "met"

    def close(self):
        (self.folder / f"closed-{self.name}").touch()


class Other:
    def reset(self, **row):
        return "other"


def double(number: int) -> int:
    """Double a number.

    Args:
        number: The number.
    """
    return 2 * number
'''


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "meeting.py").write_text(MEETING)
    return tmp_path


def make(directory: Path, name: Any, tools: tuple[str, ...] = (), **limits: Any) -> EnvironmentSet:
    template = EnvironmentRecipe(None, working_directory=directory)
    return EnvironmentSet(make_recipes(name, tools, template), HostingLimits(**limits))


def test_episodes_in_different_workers_make_calls_at_the_same_time(directory: Path) -> None:
    met: list[str] = []

    def play(name: str) -> None:
        episode = environments.open({})
        try:
            episode.reset({"name": name, "folder": str(directory)}, 0)
            met.append(episode.call("meet", {}).text)
        finally:
            episode.close()

    with make(directory, "meeting.py:Meeting", num_workers=2) as environments:
        environments.for_each(play, ["guest1", "guest2"])
    assert met == ["met", "met"]
    assert {path.name for path in directory.glob("closed-*")} == {"closed-guest1", "closed-guest2"}


def test_more_threads_than_workers_take_turns(directory: Path) -> None:
    names = [f"guest{number}" for number in range(6)]
    for name in names[:2]:
        (directory / name).touch()
    results: list[CallOutcome] = []

    def play(name: str) -> None:
        episode = environments.open({})
        episode.reset({"name": name, "folder": str(directory)}, 0)
        results.append(episode.call("meet", {}).outcome)
        episode.close()

    with make(directory, "meeting.py:Meeting", num_workers=2) as environments:
        threads = [threading.Thread(target=play, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [CallOutcome.OK] * 6


def test_episodes_with_the_python_tool_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    results: list[str] = []

    def play(number: int) -> None:
        episode = environments.open({})
        both.wait()
        results.append(episode.call("python", {"code": f"print({number})"}).text)

    recipes = make_recipes(None, ("calculator", "python"), EnvironmentRecipe(None))
    with EnvironmentSet(recipes, HostingLimits(num_workers=2)) as environments:
        environments.for_each(play, [1, 2])
    assert sorted(results) == ["1", "2"]


def test_a_row_chooses_its_environment(directory: Path) -> None:
    name = {"guess": "guess_number", "other": "meeting.py:Other"}
    with make(directory, name, execution="inline") as environments:
        assert environments.open({"environment": "other"}).reset({}, 0) == "other"
        assert "whole number" in str(environments.open({"environment": "guess"}).reset({}, 0))
        with raises(EnvironmentFailedError, "unknown_environment_of_row"):
            environments.open({"environment": "chess"})
        with raises(EnvironmentFailedError, "unknown_environment_of_row"):
            environments.open({})


def test_tools_come_beside_those_of_the_environment(directory: Path) -> None:
    with make(directory, "guess_number", ("calculator", "meeting.py:double"), execution="inline") as environments:
        episode = environments.open({})
        episode.reset({"target": 3}, 0)
        assert [tool.name for tool in episode.tools] == ["guess", "calculator", "double"]
        assert episode.call("double", {"number": 4}).text == "8"
        assert episode.call("guess", {"number": 3}).text == "right"
        assert episode.call("halve", {}).outcome is CallOutcome.UNKNOWN_TOOL
        score = episode.score([], "finished")
        assert score is not None
        assert score.value == 1.0


def test_tools_of_one_name_are_refused(directory: Path) -> None:
    with raises(InvalidEnvironmentError, "invalid_tool"):
        make(directory, None, ("calculator", "calculator"))


def test_rows_without_a_required_column_are_refused(directory: Path) -> None:
    with make(directory, "meeting.py:Meeting") as environments:
        environments.check_row({"name": "guest", "folder": "here"})
        with raises(InvalidEnvironmentError, "missing_column"):
            environments.check_row({"name": "guest"})


def test_a_text_environment_requires_the_columns_of_its_reset(directory: Path) -> None:
    (directory / "riddle.py").write_text(
        "class Riddle:\n    def reset(self, secret, hint='', seed=None, options=None):\n        return 'ready'\n"
        "    def step(self, action):\n        return 'no', 0.0, True, {}\n"
    )
    with make(directory, "riddle.py:Riddle", execution="inline") as environments:
        environments.check_row({"secret": "a"})
        with raises(InvalidEnvironmentError, "missing_column"):
            environments.check_row({"hint": "b"})


@pytest.mark.parametrize("name", ["halma", None, ["chess"]])
def test_a_row_that_names_no_environment_of_the_run_is_refused(directory: Path, name: object) -> None:
    names = {"chess": "guess_number", "go": "meeting.py:Meeting"}
    with make(directory, names, execution="inline") as environments:
        environments.check_row({"environment": "chess", "target": 3})
        with raises(InvalidEnvironmentError, "unknown_environment_of_row"):
            environments.check_row({"environment": name, "target": 3})
