"""Rewards of every convention get the whole episode, in the shape of their library."""

from collections.abc import Callable
from typing import Any

import pytest

from agent_tunix.environments import adapt_environment, run_episode
from agent_tunix.rewards.conventions import adapt
from agent_tunix.rewards.sample import EpisodeSummary, Outcome, Sample
from tests.environments.support import call, script


class Counter:
    """A counter."""

    def reset(self, **row: Any) -> str:
        self.value, self._secret, self.client = 0, 1, object()
        return "It shows 0."

    def add(self, amount: int) -> str:
        """Add to the counter."""
        self.value += amount
        return f"It shows {self.value}."

    def get_reward(self) -> float:
        return self.value / 10


def sample() -> Sample:
    """Return an episode with a tool call, of which the model wrote four of six tokens."""
    turn = "I add." + call("add", amount=5)
    result = run_episode(adapt_environment(Counter, "counter").open(), script(turn, "Five."), {"prompt": "Count."})
    summary = EpisodeSummary(
        str(result.stop_reason),
        result.num_turns,
        result.num_prompt_messages,
        score=result.score,
        text=result.text,
        tokens=(1, 2, 3, 4, 5, 6),
        loss_mask=(1, 1, 0, 0, 1, 1),
        state=result.state,
    )
    return Sample(
        "Five.", "Count.", tuple(result.messages), {"answer": "5"}, num_tokens=4, tokens=(1, 2, 5, 6), episode=summary
    )


CALLED = "I add." + call("add", amount=5)
TEXT = f"{CALLED}\nIt shows 5.\nFive."
TURNS = ["assistant", "tool", "assistant"]
seen: list[Any] = []


def roles(messages: Any) -> list[str]:
    assert [one["function"]["name"] for message in messages for one in message.get("tool_calls", ())] == ["add"]
    return [message["role"] for message in messages]


def plain(response: str, transcript: Any, episode: Any) -> float:
    seen.extend([response, roles(transcript), episode.stop_reason])
    return 1.0


def trl(prompts: Any, completions: Any, completion_ids: Any, environments: Any, **kwargs: Any) -> list[float]:
    seen.extend([roles(completions[0]), prompts[0][-1]["role"], completion_ids[0]])
    seen.extend([environments[0].value, environments[0].get_reward()])
    seen.append(hasattr(environments[0], "_secret") or hasattr(environments[0], "client"))
    return [1.0]


def environments_alone(environments: Any, **kwargs: Any) -> list[float]:
    seen.extend([environment.value for environment in environments])
    return [1.0]


async def environment(rollout_id: str, messages: Any, task: Any, termination_reason: str) -> dict[str, float]:
    seen.extend([roles(messages), termination_reason])
    return {"a": 1.0}


async def miles(args: Any, sample: Any) -> float:
    seen.extend([sample.response, sample.tokens, sample.loss_mask, sample.response_length, sample.status.value])
    return 1.0


def verifiers(completion: Any, state: Any, parser: Any) -> float:
    seen.extend([roles(completion), parser.parse_answer(completion), state["turn"], state["stop_condition"]])
    seen.append([(len(step["prompt"]), step["completion"][0]["content"]) for step in state["trajectory"]])
    return 1.0


def verl(data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    seen.extend([solution_str, extra_info["num_turns"]])
    return 1.0


def openrlhf(queries: Any, prompts: Any, labels: Any) -> list[float]:
    seen.extend([queries[0], prompts[0]])
    return [1.0]


def benchmax(completion: Any, ground_truth: Any, workspace: Any, termination_reason: str) -> float:
    seen.extend([roles(completion), termination_reason])
    return 1.0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, ["Five.", TURNS, "finished"]),
        (trl, [TURNS, "user", [1, 2, 3, 4, 5, 6], 5, 0.5, False]),
        (environments_alone, [5]),
        (environment, [["user", *TURNS], "finished"]),
        (miles, [TEXT, [1, 2, 3, 4, 5, 6], [1, 1, 0, 0, 1, 1], 6, "completed"]),
        (verifiers, [TURNS, "Five.", 2, "finished", [(1, "I add."), (3, "Five.")]]),
        (verl, [TEXT, 2]),
        (openrlhf, [f"Count.{TEXT}", "Count."]),
        (benchmax, [TURNS, "finished"]),
    ],
)
def test_a_reward_gets_the_whole_episode(function: Callable[..., Any], expected: list[Any]) -> None:
    reward = adapt(function, function.__name__)
    (score,) = reward.score([sample()])
    seen.clear()  # of trials of the form
    (score,) = reward.score([sample()])
    assert (score.value, score.outcome) == (1.0, Outcome.SCORED)
    assert seen == expected


def test_a_function_that_requires_environments_gets_messages_without_a_trial() -> None:
    assert "completions as messages" in adapt(environments_alone, "environments_alone").describe()
