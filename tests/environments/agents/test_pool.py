from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.environments.agents import (
    AgentLimits,
    AgentOutcome,
    AgentPool,
    AgentRecipe,
    AgentRun,
    check_agent,
    open_agents,
    register_agent,
)
from agent_tunix.environments.agents.recipe import read_command
from agent_tunix.errors import AgentTunixError
from agent_tunix.execution.workers import linux
from tests.raising import raises
from tests.rewards.judges.endpoint_server import EndpointServer

AGENTS = Path(__file__).with_name("faulty_agents.py")
ROW = {"question": "2 + 3"}


def _open(recipe: AgentRecipe, timeout_s: float = 60.0) -> AgentPool:
    return open_agents(recipe, AgentLimits(timeout_s))


def _run(pool: AgentPool, server: EndpointServer, *rows: dict[str, Any], key: str = "k") -> list[AgentOutcome]:
    outcomes: dict[int, AgentOutcome] = {}
    pool.run([AgentRun(row, server.url, key) for row in rows], outcomes.__setitem__)
    return [outcomes[number] for number in range(len(rows))]


@pytest.fixture(scope="module")
def alone() -> Iterator[AgentPool]:
    with _open(AgentRecipe(f"{AGENTS}:alone"), timeout_s=2.0) as pool:
        yield pool


def test_a_function_finds_the_policy_by_its_variables(alone: AgentPool, server: EndpointServer) -> None:
    for key in ("first", "second"):
        (outcome,) = _run(alone, server, ROW, key=key)
        assert outcome.score is not None
        assert (outcome.kind, outcome.score.value, outcome.score.components) == ("ok", 1.5, {"right": 1, "polite": 0.5})
        assert server.requests[-1].key == key


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("raises", "error", "no such number"),
        ("hangs", "timeout", "2 s"),
        ("exits", "exited", "status 3"),
        ("leaves", "error", "SystemExit: 3"),
        ("is killed", "exited", "SIGKILL"),
        ("floods", "flooded", "printed more than"),
        ("returns nonsense", "invalid_result", "a str"),
    ],
)
def test_a_fault_is_a_typed_outcome(alone: AgentPool, server: EndpointServer, fault: str, kind: str, text: str) -> None:
    faulty, healthy = (_run(alone, server, row)[0] for row in ({**ROW, "fault": fault}, ROW))
    assert (faulty.kind, faulty.score) == (kind, None)
    assert text in faulty.message
    assert healthy.kind == "ok"


def test_nothing_returned_is_no_score(alone: AgentPool, server: EndpointServer) -> None:
    assert _run(alone, server, {**ROW, "fault": "returns nothing"})[0].score is None


def test_children_that_an_agent_leaves_are_killed(alone: AgentPool, server: EndpointServer) -> None:
    assert _run(alone, server, {**ROW, "fault": "leaves children"})[0].kind == "ok"
    commands = [Path(f"/proc/{pid}/cmdline") for pid, _, _ in linux.processes()]
    assert not any(b"987654" in file.read_bytes() for file in commands if file.exists())


def test_a_client_is_bound_to_its_rollout_and_leaves_the_variables_alone(server: EndpointServer) -> None:
    with _open(AgentRecipe(f"{AGENTS}:with_client")) as pool:
        (outcome,) = _run(pool, server, ROW, key="bound")
    assert outcome.score is not None
    assert outcome.score.value == 1.0
    assert server.requests[-1].key == "bound"


def test_rollouts_of_an_async_agent_share_a_worker_and_fail_alone(server: EndpointServer) -> None:
    with _open(AgentRecipe(f"{AGENTS}:together"), timeout_s=1.0) as pool:
        assert pool.is_shared
        outcomes = _run(pool, server, ROW, {**ROW, "fault": "raises"}, {**ROW, "sleep": 500})
    assert [one.kind for one in outcomes] == ["ok", "error", "timeout"]


def test_an_agent_that_changes_its_row_changes_it_for_itself_alone(server: EndpointServer) -> None:
    row: dict[str, Any] = {"log": []}
    with _open(AgentRecipe(f"{AGENTS}:changes_its_row")) as pool:
        outcomes = _run(pool, server, row, row, row)
    assert [one.score.value for one in outcomes if one.score is not None] == [1.0] * 3


def test_a_class_is_constructed_with_arguments(server: EndpointServer) -> None:
    with _open(AgentRecipe(f"{AGENTS}:Constructed", args={"level": 0.25})) as pool:
        (outcome,) = _run(pool, server, ROW)
    assert outcome.score is not None
    assert (outcome.score.value, outcome.score.components["tracked"]) == (0.25, 7)


def test_a_partial_of_an_async_function_is_awaited(server: EndpointServer) -> None:
    with _open(AgentRecipe(f"{AGENTS}:partial_of_async")) as pool:
        assert pool.is_shared
        (outcome,) = _run(pool, server, ROW)
    assert outcome.kind == "ok", outcome


def test_a_closure_reaches_workers_by_value(server: EndpointServer) -> None:
    level = 0.75

    def solve(row: dict[str, Any]) -> float:
        return level

    solve.__module__ = "__main__"
    register_agent("my_closure", overwrite=True)(solve)
    with _open(AgentRecipe("my_closure")) as pool:
        (outcome,) = _run(pool, server, ROW)
    assert outcome.score is not None
    assert outcome.score.value == 0.75


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (f"{AGENTS}:too_many", "invalid_agent"),
        (f"{AGENTS}:missing", "unknown_environment"),
        ("nothing.of.this.name", "unknown_environment"),
        ("agent_calculater", "unknown_environment"),
        ("calculator", "unknown_environment"),
    ],
)
def test_what_is_no_agent_is_refused(spec: str, code: str) -> None:
    with raises(AgentTunixError, code):
        check_agent(AgentRecipe(spec))


def test_arguments_of_an_agent_that_is_no_class_are_refused() -> None:
    with raises(AgentTunixError, "invalid_environment", "requires the agent to be a class"):
        check_agent(AgentRecipe(f"{AGENTS}:alone", args={"level": 0.25}))


_ASK = (
    "import json, os, openai; row = json.load(open(os.environ['AGENT_TUNIX_ROW'])); "
    "reply = openai.OpenAI().chat.completions.create(model='policy', messages=[{'role': 'user', 'content': "
    "row['question']}]); json.dump(reply.choices[0].message.content == '5', "
    "open(os.environ['AGENT_TUNIX_RESULT'], 'w'))"
)


def test_a_command_finds_row_and_policy_and_writes_its_result(server: EndpointServer) -> None:
    with _open(AgentRecipe(command=("python", "-c", _ASK))) as pool:
        (outcome,) = _run(pool, server, ROW, key="of the command")
    assert outcome.score is not None
    assert outcome.score.value == 1.0
    assert server.requests[-1].key == "of the command"


@pytest.mark.parametrize(
    ("command", "kind", "text"),
    [
        ("bash -c 'echo what happened >&2; exit 3'", "exited", "status 3; it printed last: what happened"),
        ("bash -c 'kill -9 $$'", "exited", "SIGKILL"),
        ("sleep 1000", "timeout", "1 s"),
        ("bash -c 'sleep 1000 & echo 1 > $AGENT_TUNIX_RESULT'", "ok", ""),
        ("bash -c 'echo very good > $AGENT_TUNIX_RESULT'", "invalid_result", "JSON"),
        ("yes", "flooded", "printed more than"),
        ("no_such_program", "exited", "No such file"),
    ],
)
def test_a_fault_of_a_command_is_a_typed_outcome(server: EndpointServer, command: str, kind: str, text: str) -> None:
    with _open(AgentRecipe(command=read_command(command)), timeout_s=1.0) as pool:
        (outcome,) = _run(pool, server, ROW)
    assert outcome.kind == kind
    assert text in outcome.message
