"""Environments that draw from the global random generators."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.environments import EnvironmentRecipe, EpisodeEnvironment, adapt_environment, resolve_environment
from agent_tunix.environments.checks import check_environment
from agent_tunix.environments.environment import EpisodeSource
from agent_tunix.environments.hosting import HostedEnvironment


class InReset:
    def reset(self, **kwargs: Any) -> str:
        self.target = random.randint(1, 10**9)
        return f"Find {self.target}."

    def roll(self) -> int:
        """Roll a die."""
        return random.randint(1, 10**9)

    def get_reward(self) -> float:
        return float(np.random.rand())


class InConstructor(InReset):
    closed = 0

    def __init__(self) -> None:
        self.number = np.random.randint(10**9)

    def reset(self, **kwargs: Any) -> str:
        return f"Find {self.number}."

    def close(self) -> None:
        type(self).closed += 1


class Stepped:
    def reset(self) -> str:
        return str(np.random.permutation(100))

    def step(self, action: str) -> tuple[Any, ...]:
        return str(random.random()), float(np.random.normal()), False, {}


class Rollouts:
    """An object that all episodes share, of benchmax."""

    def __init__(self) -> None:
        self.chance = random.Random(random.random())

    def list_tools(self) -> list[dict[str, Any]]:
        return [{"name": "roll", "description": "Roll a die."}]

    def run_tool(self, rollout_id: str, tool_name: str) -> float:
        return random.random()

    def compute_reward(self, rollout: Any) -> dict[str, float]:
        return {"luck": random.random()}


def die() -> float:
    """Roll a die."""
    return random.random()


ALL = [InReset, InConstructor, Stepped, Rollouts, die]


def observe(episode: EpisodeEnvironment, seed: int) -> list[Any]:
    """Return what an episode shows of its random numbers."""
    seen: list[Any] = [episode.reset({}, seed)]
    for _ in range(2):
        seen += [episode.call(tool.name, {}).text for tool in episode.tools]
        if episode.traits.replies:
            seen.append(episode.respond("go").text)
    score = episode.score([{"role": "assistant", "content": ""}], "finished")
    episode.close()
    return [*seen, score and score.value]


@pytest.mark.parametrize("given", ALL)
def test_equal_seeds_give_equal_episodes_and_others_give_others(given: Any) -> None:
    adapter = adapt_environment(given, "mine")
    first = observe(adapter.open(), 5)
    random.random()
    np.random.rand()
    assert observe(adapter.open(), 5) == first
    assert observe(adapter.open(), 6) != first


@pytest.mark.parametrize("given", ALL)
def test_an_environment_that_draws_from_the_global_generators_passes_the_checks(given: Any) -> None:
    report = check_environment(adapt_environment(given, "mine"))
    assert [one for one in report.findings if one.status == "failed"] == []


@pytest.mark.parametrize("given", ALL)
def test_the_generators_of_the_process_are_left_as_they_were(given: Any) -> None:
    random.seed(1)
    np.random.seed(1)
    expected = (random.random(), np.random.rand())
    random.seed(1)
    np.random.seed(1)
    observe(adapt_environment(given, "mine").open(), 5)
    assert (random.random(), np.random.rand()) == expected


def test_episodes_side_by_side_do_not_share_numbers() -> None:
    adapter = adapt_environment(InReset, "mine")
    alone = observe(adapter.open(), 5)
    one, other = adapter.open(), adapter.open()
    begun = [one.reset({}, 5), other.reset({}, 5)]
    rolled = [episode.call("roll", {}).text for _ in range(2) for episode in (one, other)]
    assert begun == [alone[0]] * 2
    assert rolled[::2] == rolled[1::2] == alone[1:3]


SHUFFLED = """
import random

import numpy as np

TASKS = [str(number) for number in range(1000)]
random.shuffle(TASKS)


class Env:
    def reset(self, **row):
        self.task = TASKS[np.random.randint(len(TASKS))]
        return self.task

    def get_reward(self):
        return 1.0
"""


def test_workers_and_this_process_draw_the_same(tmp_path: Path) -> None:
    (tmp_path / "shuffled.py").write_text(SHUFFLED)
    adapter = resolve_environment("shuffled.py:Env", working_directory=tmp_path)
    recipe = EnvironmentRecipe("shuffled.py:Env", working_directory=tmp_path)

    def tasks(source: EpisodeSource) -> list[str]:
        return [str(observe(source.open(), seed)[0]) for seed in (1, 2, 1, 2)]

    with HostedEnvironment(recipe, adapter.traits, num_workers=2) as hosted:
        assert tasks(hosted) == tasks(adapter)
    assert len({*tasks(adapter)}) == 2
