"""Results of OpenEnv: the policy sees what its server sends as the observation, and each reward counts."""

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel, Field

from agent_tunix.environments import adapt_environment, run_episode
from agent_tunix.environments.outcomes import to_text
from tests.environments.support import script


class Observation(BaseModel):
    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class Hint(Observation):
    hint: str = ""


@dataclasses.dataclass(kw_only=True)
class OlderHint:
    hint: str
    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class StepResult:
    observation: Any
    reward: float | None = None
    done: bool = False


SECRET = {"secret": "pear"}


def make(last: Any, first: Any = None) -> type:
    class Words:
        def reset(self) -> Any:
            return Hint(hint="four letters", metadata=SECRET) if first is None else first

        def step(self, action: str) -> Any:
            return last

    return Words


def play(environment: type) -> tuple[list[str], Any]:
    result = run_episode(adapt_environment(environment, "words").open(), script("pear"), {"question": "Guess."})
    return [message["content"] for message in result.messages if message["role"] == "user"], result.score


@pytest.mark.parametrize(
    "last",
    [
        Hint(hint="yes", reward=1.0, done=True, metadata=SECRET),
        OlderHint(hint="yes", reward=1.0, done=True, metadata=SECRET),
        {"hint": "yes", "reward": 1.0, "done": True, "metadata": SECRET},
        StepResult(Hint(hint="yes", metadata=SECRET), 1.0, True),
        StepResult(Hint(hint="yes", reward=1.0, done=True, metadata=SECRET), 1.0, True),
        StepResult(Hint(hint="yes", reward=1.0, done=True, metadata=SECRET)),  # a client that copies neither
        StepResult({"hint": "yes", "reward": 1.0, "done": True, "metadata": SECRET}),
        {"observation": {"hint": "yes"}, "reward": 1.0, "done": True},
    ],
)
def test_the_policy_sees_the_observation_alone_and_the_reward_counts(last: Any) -> None:
    texts, score = play(make(last))
    assert [text.replace(": ", ":") for text in texts] == ['Guess.\n\n{"hint":"four letters"}', '{"hint":"yes"}']
    assert score.value == 1.0


def test_the_reward_of_the_result_comes_before_that_of_its_observation() -> None:
    _, score = play(make(StepResult(Hint(hint="yes", reward=1.0, done=True), 0.25, True)))
    assert score.value == 0.25


def test_the_first_observation_may_be_in_a_result() -> None:
    first = StepResult(Hint(hint="start", metadata=SECRET))
    texts, _ = play(make(Hint(hint="end", done=True, reward=0.0), first))
    assert texts == ['Guess.\n\n{"hint":"start"}', '{"hint":"end"}']


def test_an_observation_without_fields_of_its_own_shows_nothing() -> None:
    texts, score = play(make(Observation(done=True, reward=2.0, metadata=SECRET), "Go."))
    assert (texts, score.value) == (["Guess.\n\nGo."], 2.0)


def test_an_episode_that_ends_without_any_reward_has_no_score() -> None:
    assert play(make(Hint(hint="yes", done=True)))[1] is None


def test_a_tool_that_returns_a_result_of_openenv_shows_its_observation() -> None:
    hint = Hint(hint="yes", reward=1.0, done=True, metadata=SECRET)
    assert to_text(hint) == to_text(StepResult(hint, 1.0, True)) == '{"hint":"yes"}'


def test_a_structure_of_a_tool_keeps_fields_of_these_names() -> None:
    @dataclasses.dataclass
    class Order:
        done: bool
        reward: int

    assert to_text(Order(True, 5)) == '{"done": true, "reward": 5}'
    assert to_text({"reward": 5, "metadata": 1}) == '{"reward": 5, "metadata": 1}'
