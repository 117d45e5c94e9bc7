"""Environments of the real library, in the workers in which they train.

They need `pip install verifiers`, which constraints.txt excludes: it pins an older `mcp` and, from 0.4, `openai`.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from agent_tunix.environments.agents import AgentLimits, AgentOutcome, AgentRun
from agent_tunix.environments.verifiers import agent_of, open_agents, read_rows
from agent_tunix.errors import InvalidEnvironmentError, UnknownEnvironmentError
from tests.environments.support import GALLERY
from tests.environments.verifiers.scripted import scripted_policy
from tests.raising import raises
from tests.rewards.judges.endpoint_server import EndpointServer

pytest.importorskip("verifiers")
INSTALLED = GALLERY / "of_verifiers"
HAS_RUBRICS = find_spec("verifiers.legacy") or find_spec("verifiers.rubrics")
with_rubrics = pytest.mark.skipif(not HAS_RUBRICS, reason="needs verifiers below 0.4")
with_tasksets = pytest.mark.skipif(not find_spec("verifiers.v1.harnesses.utils"), reason="needs verifiers from 0.4")

# Reading rows imports the library in this process, with warnings of its own.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def policy() -> Iterator[EndpointServer]:
    with scripted_policy() as policy:
        yield policy


def play(policy: EndpointServer, name: str, args: dict[str, Any], rows: list[dict[str, Any]]) -> list[AgentOutcome]:
    outcomes: dict[int, AgentOutcome] = {}
    runs = [AgentRun(row, policy.url, f"{name}-{number}", number) for number, row in enumerate(rows)]
    with open_agents(agent_of(name, args, INSTALLED), AgentLimits(timeout_s=120.0)) as pool:
        pool.run(runs, outcomes.__setitem__)
    return [outcomes[number] for number in range(len(rows))]


@with_rubrics
def test_one_turn_with_a_parser_and_a_system_prompt(policy: EndpointServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing listens there
    train, held_out = read_rows("vf_sums", {"num_train": 6}, INSTALLED, 10)
    assert len(train) == 6
    assert len(held_out) == 8
    assert [message["role"] for message in train[0]["prompt"]] == ["system", "user"]
    outcomes = play(policy, "vf_sums", {"num_train": 6}, train)
    assert [outcome.kind for outcome in outcomes] == ["ok"] * 6
    score = outcomes[3].score
    assert score is not None
    assert score.value == 1.25
    assert {"correct": 1.0, "brief": 1.0}.items() <= score.components.items()
    assert sum(one.key == "vf_sums-3" for one in policy.requests) == 1, "a rollout's calls have its key"


@with_rubrics
def test_tools_are_offered_and_called(policy: EndpointServer) -> None:
    train, _ = read_rows("vf_tools", {"num_train": 2}, INSTALLED, 10)
    (outcome,) = play(policy, "vf_tools", {"num_train": 2}, train[:1])
    assert outcome.score is not None
    assert outcome.score.value == 1.0
    assert outcome.score.components["calculator_calls"] == 1.0
    first, second = (one.body for one in policy.requests if one.key == "vf_tools-0")
    assert first["tools"][0]["function"]["name"] == "calculator"
    assert second["messages"][-1]["role"] == "tool"


@with_rubrics
def test_several_turns_with_a_state(policy: EndpointServer) -> None:
    train, _ = read_rows("vf_guess", {}, INSTALLED, 10)
    outcomes = play(policy, "vf_guess", {}, train)
    solved = [outcome.score.value for outcome in outcomes if outcome.score is not None]
    assert solved == [float(number in (3, 5, 7)) for number in range(1, 11)]


@with_rubrics
def test_a_function_of_a_rubric_that_fails_scores_0_and_is_told(policy: EndpointServer) -> None:
    args = {"num_train": 2, "wrong_reference": True}
    train, _ = read_rows("vf_sums", args, INSTALLED, 10)
    (outcome,) = play(policy, "vf_sums", args, train[:1])
    score = outcome.score
    assert score is not None
    assert score.value == 0.25
    assert score.components["rubric_faults"] == 1.0
    assert "correct" in score.detail
    assert "the reference is no number" in score.detail


@with_rubrics
def test_a_rubric_of_groups_is_refused_by_name() -> None:
    with raises(InvalidEnvironmentError, "unsupported_library", "together"):
        read_rows("vf_sums", {"scores_groups": True}, INSTALLED, 10)


@with_tasksets
@pytest.mark.parametrize("with_tools", [False, True])
def test_tasksets(policy: EndpointServer, with_tools: bool) -> None:
    args = {"with_tools": with_tools}
    train, held_out = read_rows("vf_reverse", args, INSTALLED, 10)
    assert len(train) == 6
    assert not held_out
    outcomes = play(policy, "vf_reverse", args, train[:3])
    assert [outcome.kind for outcome in outcomes] == ["ok"] * 3, outcomes
    score = outcomes[1].score
    assert score is not None
    assert score.value == 2.0
    assert score.components == {"exact": 1.0, "num_letters": 6.0}


def test_an_unknown_name_and_arguments_are_errors() -> None:
    with raises(UnknownEnvironmentError, "unknown_environment", "vf_nothing"):
        read_rows("vf_nothing", {}, INSTALLED, 10)
    name = "vf_sums" if HAS_RUBRICS else "vf_reverse"
    with raises(InvalidEnvironmentError, "environment_import_failed", "no_such_argument"):
        read_rows(name, {"no_such_argument": 1}, INSTALLED, 10)
