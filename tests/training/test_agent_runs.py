"""Runs whose episodes agents drive: training, evaluation and resuming, with rows that continue and rows that fork."""

import json
from pathlib import Path
from typing import Any

import pytest

import agent_tunix
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.training.verification import first_difference, read_rows
from tests.small_run import NUM_STEPS, SMALL_RUN

pytestmark = pytest.mark.slow

OVERRIDES = (*SMALL_RUN, "model=tiny_tools", "data=arithmetic", "prompt=answer", "training.reward_function=agent")


def make_agent(level: float) -> Any:
    """Return an agent that asks twice, the second time with a history of its own, and holds a value of this process."""

    async def solve(row: dict[str, Any], client: Any) -> dict[str, float] | None:
        texts = []
        for attempt in range(2):
            messages = [{"role": "user", "content": f"{row['question']} Attempt {attempt}."}]
            reply = await client.chat.completions.create(model="policy", messages=messages, max_tokens=4000)
            texts.append(str(reply.choices[0].message.content))
        return {"short": -len(texts[0]) / 100, "level": level}

    return solve


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> agent_tunix.Run:
    directory = tmp_path_factory.mktemp("agents") / "run"
    return agent_tunix.train(*OVERRIDES, agent=make_agent(0.5), directory=directory)


def test_an_agent_of_a_closure_trains_and_is_evaluated(run: agent_tunix.Run) -> None:
    rows = read_rows(Path(run.directory))
    steps = [row for row in rows if row["step"] > 0]
    assert all(row["agent/outcomes/ok"] == 16 and row["agent/calls_mean"] == 2 for row in steps)
    assert all(row["agent/forks"] == 16 and row["policy/grad_norm"] > 0 for row in steps)
    assert all(row["rewards/total/mean"] < 0.5 for row in steps)
    assert "eval/accuracy" in rows[0]


def test_rollouts_have_the_calls_of_the_agent(run: agent_tunix.Run) -> None:
    tables = RolloutReader(Path(run.directory) / "rollouts").tables()
    agents = [json.loads(row["episode"])["agent"] for table in tables for row in table.to_pylist()]
    assert len(agents) == 16 * NUM_STEPS
    assert all(len(agent["calls"]) == 2 and agent["calls"][1]["row"] == 1 for agent in agents)


def test_an_equal_run_is_equal(run: agent_tunix.Run, tmp_path: Path) -> None:
    again = agent_tunix.train(*OVERRIDES, agent=make_agent(0.5), directory=tmp_path / "run")
    assert first_difference(read_rows(Path(run.directory)), read_rows(Path(again.directory))) is None
