"""Calls of agents: their tree and their metrics."""

from typing import Any

import pytest

from agent_tunix.rewards import EpisodeSummary, Sample
from agent_tunix.rewards.agent_calls import count_forks, describe_calls
from agent_tunix.rewards.statistics.episodes import episode_metrics
from tests.rewards.agents import AGENT, ONE_CALL


def test_a_fork_is_shown_below_its_parent() -> None:
    lines = describe_calls(AGENT)
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 0, 3, 3, 6, 0]
    assert lines[3].strip() == "row 1 (transcript), dropped, after 'x': '<think>' became '4'"
    assert lines[4].strip() == "call 3: 24 tokens, 20 of them kept, then 2 sampled in 0.12 s: '4\\nwell'"
    assert lines[5].startswith("not trained: call 2")
    assert count_forks([AGENT, AGENT, ONE_CALL]) == {("dropped", "after 'x': '<think>' became '#'"): 2}


def test_a_thousand_forks_of_forks_are_shown_in_part() -> None:
    first, _, fork = AGENT["calls"]
    calls = [first, *({**fork, "row": row, "parent": row - 1} for row in range(1, 1000))]
    assert len(describe_calls({**AGENT, "calls": calls})) == 201


def test_metrics_of_agents() -> None:
    samples = [Sample("4", episode=EpisodeSummary("finished", 1, 1, agent=agent)) for agent in (AGENT, ONE_CALL)]
    row = episode_metrics(samples)
    assert {name: value for name, value in row.items() if "agent" in name} == {
        "agent/calls_mean": 2.0,
        "agent/calls_untrained": 1,
        "agent/rows_mean": 1.5,
        "agent/forks": 1,
        "agent/forked_share": 0.5,
        "agent/tokens_needed": 44,
        "throughput/agent_tokens_read": 44,
        "agent/fork_causes/dropped": 1,
        "agent/outcomes/ok": 1,
        "agent/outcomes/timeout": 1,
    }
    assert not any("agent" in name for name in episode_metrics([Sample("4", episode=EpisodeSummary("finished", 1, 1))]))


def test_an_agent_without_a_call_has_metrics() -> None:
    agent: dict[str, Any] = {"outcome": "no_calls", "main_row": None, "calls": []}
    row = episode_metrics([Sample("", episode=EpisodeSummary("error", 0, 0, agent=agent))])
    assert row["agent/rows_mean"] == pytest.approx(0.0)
    assert len(describe_calls(agent)) == 1


def test_how_the_tools_of_an_agent_fared_is_unknown_and_not_zero() -> None:
    calls = ({"turn": 0, "name": "search", "outcome": "ok", "seconds": 0.0},)
    row = episode_metrics([Sample("4", episode=EpisodeSummary("finished", 1, 1, calls=calls, agent=ONE_CALL))])
    assert (row["tools/calls_mean"], row["tools/search/calls"]) == (1.0, 1)
    unknown = ("tools/failure_share", "tools/parse_errors", "tools/unread_calls")
    assert [row[name] for name in unknown] == [None] * 3
    assert not {"tools/search/errors", "time/tools/search_s"} & row.keys()
