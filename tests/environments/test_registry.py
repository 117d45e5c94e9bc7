import logging
from pathlib import Path

import pytest

from agent_tunix.environments import list_registered, register_environment, register_tool, resolve_environment
from agent_tunix.errors import InvalidEnvironmentError, UnknownEnvironmentError
from tests.raising import raises

MINE = '''
from agent_tunix.environments import register_environment, register_tool


@register_tool("shout")
def shout(text: str) -> str:
    """Shout.

    Args:
        text: The text.
    """
    return text.upper()


@register_environment("room")
class Room:
    """A room."""

    def reset(self, **row):
        return "a room"

    def look(self) -> str:
        """Look."""
        return "walls"


class Other:
    def step(self, action):
        return 1

    def reset(self):
        return ""

    def get_reward(self):
        return 1.0


value = 3
'''


THEIRS = """
import verifiers as vf


class Game(vf.MultiTurnEnv):
    @vf.stop
    async def is_won(self, state):
        return True


def load_environment():
    return Game()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "theirs.py").write_text(THEIRS)
    return tmp_path


def one(text: str) -> str:
    """Say one."""
    return text


def two(text: str) -> str:
    """Say two."""
    return text


def test_a_registered_tool_is_found_by_name() -> None:
    assert register_tool("one")(one) is one
    assert "one" in list_registered()
    assert [tool.name for tool in resolve_environment("one").open().tools] == ["one"]


def test_the_same_function_may_register_twice_and_another_may_not(caplog: pytest.LogCaptureFixture) -> None:
    register_tool("one")(one)
    register_tool("one")(one)
    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_tool("one")(two)
    register_tool("one", overwrite=True)(two)
    assert resolve_environment("one").definition is two


def test_a_built_in_s_name_can_be_replaced_which_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agent_tunix.environments"):
        register_tool("calculator")(one)
    assert "calculator" in caplog.text
    assert resolve_environment("calculator").definition is one


@pytest.mark.parametrize("name", ["", "a b", "1a", "a.b", "a:b", "x" * 101])
def test_a_malformed_name_is_refused(name: str) -> None:
    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_environment(name)


def test_what_is_no_environment_cannot_be_registered() -> None:
    class Nothing:
        pass

    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_environment("nothing")(Nothing)
    with raises(InvalidEnvironmentError, "invalid_environment"):
        register_environment("one", convention="gym")(one)


@pytest.mark.parametrize(
    ("spec", "convention"),
    [
        ("mine.py:Room", "class"),
        ("mine.Room", "class"),
        ("mine.py:shout", "tools"),
        ("mine.Other", "class"),
        ("room", "class"),
        ("shout", "tools"),
        ("guess_number", "class"),
        ("calculator", "tools"),
    ],
)
def test_a_specification_is_resolved(directory: Path, spec: str, convention: str) -> None:
    adapter = resolve_environment(spec, modules=["mine.py"], working_directory=directory)
    assert adapter.convention == convention


@pytest.mark.parametrize(
    ("spec", "code", "part"),
    [
        ("gues_number", "unknown_environment", "did you mean 'guess_number'?"),
        ("mine.py:Roo", "unknown_environment", "did you mean 'Room'?"),
        ("mine.py", "unknown_environment", "mine.py:Room"),
        ("mine.Nothing", "unknown_environment", "There are"),
        ("nowhere.Room", "unknown_environment", "nowhere"),
        ("nowhere.py:Room", "missing_environment_file", "nowhere.py"),
    ],
)
def test_an_unknown_name_lists_the_closest(directory: Path, spec: str, code: str, part: str) -> None:
    with raises(UnknownEnvironmentError, code, part):
        resolve_environment(spec, working_directory=directory)


@pytest.mark.parametrize(
    ("spec", "args", "code"),
    [
        ("broken.py:Room", {}, "environment_import_failed"),
        ("broken.Room", {}, "environment_import_failed"),
        ("mine.py:value", {}, "invalid_environment"),
        ("mine.py:Room", {"size": 3}, "invalid_environment"),
        ("mine.py:shout", {"size": 3}, "invalid_environment"),
        ("theirs.py:Game", {}, "unsupported_library"),
        ("theirs.py:load_environment", {}, "unsupported_library"),
    ],
)
def test_what_cannot_be_used_is_an_error(directory: Path, spec: str, args: dict[str, int], code: str) -> None:
    with raises(InvalidEnvironmentError, code):
        resolve_environment(spec, args=args, working_directory=directory)


def test_a_missing_argument_is_told_when_an_episode_opens() -> None:
    with raises(InvalidEnvironmentError, "invalid_environment"):
        resolve_environment("search").open()
