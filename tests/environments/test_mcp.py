"""Tools of MCP servers: real ones, written with the SDK, over standard input and output and over HTTP."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments import CallOutcome, EnvironmentRecipe, EpisodeEnvironment, StopReason, run_episode
from agent_tunix.environments.checks import check_environment
from agent_tunix.environments.conventions.mcp import McpAdapter
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from tests.environments.support import GALLERY, call, script, texts
from tests.raising import raises
from tests.rewards.execution.leftovers import wait_until
from tests.tiers import slow_after

DIRECTORY = Path(__file__).parent
ROOT = DIRECTORY.parents[1]


def workshop(**more: Any) -> McpServer:
    return McpServer.read({"command": [sys.executable, "workshop.py"], **more}, DIRECTORY)


@pytest.fixture(scope="module")
def adapter() -> Iterator[McpAdapter]:
    with McpAdapter(workshop(), timeout_s=60.0) as opened:
        yield opened


def pid_of(episode: EpisodeEnvironment) -> int:
    return int(json.loads(episode.call("about", {}).text)["pid"])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_tools_are_those_of_the_server_with_their_own_schemas(adapter: McpAdapter) -> None:
    add = adapter.declare()[0]
    assert (add.name, add.description) == ("add", "Add two numbers.")
    assert add.parameters["properties"]["b"] == {"default": 1, "title": "B", "type": "integer"}
    assert add.parameters["required"] == ["a"]


@pytest.mark.parametrize(
    ("tool", "arguments", "outcome", "text"),
    [
        ("add", {"a": 2}, CallOutcome.OK, "3"),
        ("add", {}, CallOutcome.BAD_ARGUMENTS, "Error: bad arguments for add: `a` is required, but missing"),
        ("refuse", {"reason": "no"}, CallOutcome.TOOL_ERROR, "Error: Error executing tool refuse: refused: no"),
        ("crash", {}, CallOutcome.TOOL_ERROR, "Error: Error executing tool crash"),
        ("subtract", {}, CallOutcome.UNKNOWN_TOOL, "Error: there is no tool 'subtract'"),
        ("nothing", {}, CallOutcome.OK, ""),
        ("mixed", {}, CallOutcome.OK, "first\n[image: image/png]\na page"),
        ("flood", {"characters": 1_000_000}, CallOutcome.TOO_LONG, "xxx"),
    ],
)
def test_results_and_errors_are_told_to_the_model(
    adapter: McpAdapter, tool: str, arguments: dict[str, Any], outcome: CallOutcome, text: str
) -> None:
    result = adapter.open().call(tool, arguments, 100)
    assert result.outcome is outcome
    assert result.text.startswith(text)
    assert len(result.text) < 400


# Command → turns of a policy, and how the results start.
PUBLISHED: dict[str, tuple[list[str], list[str]]] = {
    "python dice.py": (
        [call("roll", sides=6, seed=1), call("roll_over", far=True)],
        ["2", "Error: The die fell off the table."],
    ),
    "python weather.py": ([call("get_weather", city="Oslo", unit="F")], ['{\n  "city": "Oslo",\n  "degrees": 48.2,']),
    "python todo.py": (
        [call("add_todo", item={"title": "sow", "tags": ["field"]}), call("add_todo", item={}), call("clear_todos")],
        ["sow (field)", "Error: Error executing tool add_todo: 1 validation error", "1"],
    ),
    "python archive.py": (
        [call("read_page", topic="ship"), call("read_page", topic="ship", page=2)],
        ["Ship\nA ship in harbour is safe.", "Error: bad arguments for read_page: there is no argument `page`"],
    ),
    "python shop.py --discount 0.5": (
        [call("find-goods", part="tea", most=5), call("price", article="cup"), call("price", article="hat")],
        [
            '{\n  "name": "tea",\n  "price": 2.0\n}',
            "1.5",
            "Error: Error executing tool price: there are no goods 'hat'",
        ],
    ),
}


@pytest.mark.parametrize("command", slow_after(1, list(PUBLISHED)))
def test_servers_run_unedited(command: str) -> None:
    turns, expected = PUBLISHED[command]
    with McpAdapter(McpServer.read({"command": command}, GALLERY / "mcp"), timeout_s=60.0) as adapter:
        result = run_episode(adapter.open(), script(*turns, "done"))
        report = check_environment(adapter)
    assert result.error == ""
    results = texts(result.messages, "tool")
    assert [one for one, start in zip(results, expected, strict=True) if not one.startswith(start)] == []
    assert [one for one in report.findings if one.status == "failed"] == []


def test_an_episode_makes_calls(adapter: McpAdapter) -> None:
    result = run_episode(adapter.open(), script(call("add", a=2, b=3), "Five."), {"prompt": "2 + 3?"})
    assert texts(result.messages, "tool") == ["5"]
    assert (result.stop_reason, result.score) == (StopReason.FINISHED, None)


def test_a_server_that_dies_is_an_error_of_its_episodes_and_the_next_one_gets_a_new_server() -> None:
    with McpAdapter(workshop()) as adapter:
        before = adapter.open()
        first = pid_of(before)
        result = run_episode(adapter.open(), script(call("exit"), "done"))
        assert result.stop_reason is StopReason.ERROR
        assert "was lost while exit ran" in result.error
        with raises(EnvironmentFailedError, "mcp_server_failed"):
            before.call("add", {"a": 1})
        second = pid_of(adapter.open())
        assert second != first
    assert not is_running(first)
    assert not is_running(second)


@pytest.mark.slow
def test_a_call_that_takes_too_long_leaves_the_server_to_others() -> None:
    with McpAdapter(workshop(), timeout_s=3.0) as adapter:
        pid = pid_of(adapter.open())
        with raises(EnvironmentFailedError, "environment_timeout"):
            adapter.open().call("sleep", {})
        assert pid_of(adapter.open()) == pid


@pytest.mark.slow
def test_a_server_that_does_not_answer_any_more_is_replaced_and_killed() -> None:
    with McpAdapter(workshop(), timeout_s=3.0) as adapter:
        pid = pid_of(adapter.open())
        with raises(EnvironmentFailedError, "environment_timeout"):
            adapter.open().call("block", {})
        assert pid_of(adapter.open()) != pid
    assert not is_running(pid)


@pytest.mark.slow
def test_what_a_server_has_started_ends_with_it_and_with_a_killed_trainer() -> None:
    program = (
        "import os, sys; from tests.environments.test_mcp import *; adapter = McpAdapter(workshop());"
        "print(pid_of(adapter.open()), adapter.open().call('child', {}).text, flush=True);"
        "adapter.close() if sys.argv[1] == 'close' else os.kill(os.getpid(), 9)"
    )
    for end in ("close", "kill"):
        ran = subprocess.run([sys.executable, "-c", program, end], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        pids = [int(pid) for pid in ran.stdout.split()]
        assert len(pids) == 2
        wait_until(lambda pids=pids: not any(map(is_running, pids)))  # type: ignore[misc]
        assert not any(map(is_running, pids))


def test_calls_of_several_episodes_overlap(adapter: McpAdapter, tmp_path: Path) -> None:
    results: list[str] = []
    one, other = adapter.open(), adapter.open()
    arguments = {"mine": str(tmp_path / "mine"), "theirs": str(tmp_path / "theirs")}
    waiting = threading.Thread(target=lambda: results.append(one.call("meet", arguments).text))
    waiting.start()
    results.append(other.call("add", {"a": 1}).text)
    (tmp_path / "theirs").touch()
    waiting.join()
    assert results == ["2", f"found {tmp_path / 'theirs'}"]


@pytest.mark.slow
def test_a_server_has_the_variables_that_it_is_given_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "mine")
    monkeypatch.setenv("COLOUR", "red")
    for env, text in (({"COLOUR": None}, '"colour": "red"'), ({"COLOUR": "blue"}, '"colour": "blue"')):
        with McpAdapter(workshop(env=env)) as adapter:
            said = adapter.open().call("about", {}).text
        assert text in said
        assert '"secret": null' in said


@pytest.mark.slow
@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:1", "socks5://127.0.0.1:1"])
def test_a_server_over_http(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):  # a server on this machine needs none
        monkeypatch.setenv(name, proxy)
    process = subprocess.Popen(
        [sys.executable, "workshop.py", "http"], cwd=DIRECTORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        with McpAdapter(McpServer.read({"url": url}, DIRECTORY), timeout_s=30.0) as adapter:
            one, other = adapter.open(), adapter.open()
            assert [one.call("add", {"a": 2}).text, other.call("add", {"a": 3}).text] == ["3", "4"]
            assert one.call("refuse", {"reason": "no"}).outcome is CallOutcome.TOOL_ERROR
            assert one.call("flood", {"characters": 2_000_000}).outcome is CallOutcome.TOO_LONG
            with raises(EnvironmentFailedError, "mcp_server_failed"):
                one.call("exit", {})
            with raises(EnvironmentFailedError, "mcp_server_failed"):
                adapter.open()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"command": []},
        {"command": "python 'server.py"},
        {"command": "python", "url": "http://localhost/mcp"},
        {"url": "ftp://localhost"},
        {"url": "http://localhost/mcp", "env": {"A": "b"}},
        {"command": "python", "arg": ["x"]},
        {"command": "python", "args": "x"},
        {"command": {"python": 1}},
        "python server.py",
    ],
)
def test_a_server_of_another_form_is_refused(given: Any) -> None:
    with raises(InvalidEnvironmentError, "invalid_environment"):
        McpServer.read(given, DIRECTORY)


def test_a_server_that_does_not_start_says_what_it_wrote() -> None:
    for command in ("no-such-program", [sys.executable, "-c", "raise SystemExit('no licence')"]):
        with raises(InvalidEnvironmentError, "mcp_server_failed") as raised:
            McpAdapter(McpServer.read({"command": command}, DIRECTORY))
    assert "it wrote: no licence" in str(raised.value)


def test_lines_that_are_no_messages_are_ignored_and_warned_of_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "noisy.py").write_text("print('one')\nprint('two')\n" + (GALLERY / "mcp" / "dice.py").read_text())
    with McpAdapter(McpServer.read({"command": "python noisy.py"}, tmp_path)) as adapter:
        assert adapter.open().call("roll", {"sides": 6, "seed": 1}).text == "2"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with raises(InvalidEnvironmentError, "missing_package", "pip install agent_tunix[mcp]"):
        McpAdapter(workshop())


@pytest.mark.parametrize("execution", slow_after(1, ["auto", "process"]))
def test_servers_are_shared_by_all_environments_wherever_these_run(tmp_path: Path, execution: str) -> None:
    (tmp_path / "own.py").write_text("class Own:\n    def reset(self, **row):\n        return 'ready'\n")
    names = {"guess": "guess_number", "own": "own.py:Own"}
    template = EnvironmentRecipe(None, working_directory=tmp_path)
    recipes = make_recipes(names, [], template)
    found: list[tuple[str, int]] = []

    def play(name: str) -> None:
        episode = environments.open({"environment": name})
        found.append((str(episode.reset({"target": 3}, 0)), pid_of(episode)))
        episode.close()

    with EnvironmentSet(recipes, HostingLimits(execution, num_workers=2), [workshop()]) as environments:
        assert "in 2 workers" in environments.describe()
        environments.for_each(play, ["guess", "own"] * 2)
    assert len({pid for _, pid in found}) == 1
    assert sum(first == "ready" for first, _ in found) == 2
    assert not is_running(found[0][1])


@pytest.mark.slow
def test_servers_alone_are_an_environment_and_their_names_must_differ() -> None:
    recipes = make_recipes(None, [], EnvironmentRecipe(None))
    before = threading.active_count()
    with EnvironmentSet(recipes, HostingLimits(num_workers=2), [workshop()]) as environments:
        assert environments.open({}).call("add", {"a": 1}).text == "2"
    with raises(InvalidEnvironmentError, "invalid_tool"):
        EnvironmentSet(recipes, HostingLimits(), [workshop(), workshop()])
    assert threading.active_count() == before
