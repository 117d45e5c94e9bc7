from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.environments import EpisodeResult, StopReason
from agent_tunix.environments.agents import AgentLimits, AgentRecipe, open_agents
from agent_tunix.rewards import Outcome
from agent_tunix.sampling.requests import TokenRequest
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.serving.agent_sampler import AgentSampler, RolloutLimits
from agent_tunix.serving.scripted import ScriptedSource
from tests.serving.support import open_tokenizer

AGENTS = Path(__file__).with_name("chatty_agents.py")
ROW = {"question": "What is 2 + 3?", "answer": "5"}
G = 2


class Bench:
    """An agent sampler over a script that answers 5, and the requests that came."""

    def __init__(self, max_concurrency: int = 4, timeout_s: float = 3.0) -> None:
        tokenizer = open_tokenizer()
        self.requests: list[TokenRequest] = []

        def write(request: TokenRequest) -> str:
            self.requests.append(request)
            return "It is 5"

        limits = AgentLimits(timeout_s, max_concurrency=max_concurrency)
        self.pool = open_agents(AgentRecipe(f"{AGENTS}:solve"), limits)
        self.sampler = AgentSampler(
            lambda _: ScriptedSource(tokenizer, write, max_context=512),
            tokenizer,
            self.pool,
            EpisodeEncoder(tokenizer, PromptConfig()),
            RolloutLimits(max_calls=5, max_tokens=1000, max_context=512),
        )

    def sample(self, *rows: dict[str, Any], seed: int = 0, num_generations: int = G) -> Completions:
        self.requests.clear()
        messages = [[{"role": "user", "content": row["question"]}] for row in rows]
        batch = PromptBatch([row["question"] for row in rows], messages, [[1]] * len(rows), list(rows))
        sampling = SamplingParams(16, temperature=0.7)
        return self.sampler.sample_batch(
            batch, jax.random.key(seed), sampling, num_generations=num_generations, max_prompt_length=256
        )

    def episode(self, row: dict[str, Any]) -> EpisodeResult:
        episodes = self.sample(row).episodes
        assert episodes is not None
        return episodes[0]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = Bench()
    with bench.pool:
        yield bench


def test_two_turns_of_an_agent_are_one_row_with_its_result(bench: Bench) -> None:
    completions = bench.sample(ROW, {**ROW, "answer": "6"})
    assert completions.episodes is not None
    assert completions.forks is None or len(completions.forks.owners) == 0
    assert [one.score and one.score.value for one in completions.episodes] == [1.0, 1.0, 0.0, 0.0]
    first = completions.episodes[0]
    assert [message["role"] for message in first.messages] == ["user", "assistant", "user", "assistant"]
    assert (first.num_turns, first.num_prompt_messages, first.stop_reason) == (2, 1, StopReason.FINISHED)
    assert completions.texts[0] == "It is 5"
    per_turn = len(bench.sampler._tokenizer.encode_prompts([["It is 5"]])[0]) + 1
    assert completions.num_sampled.tolist() == [2 * per_turn] * 4


def test_the_run_decides_how_calls_are_sampled(bench: Bench) -> None:
    bench.sample(ROW)
    assert {(one.temperature, one.max_tokens) for one in bench.requests} == {(0.7, 16)}


def test_seeds_derive_from_the_key_and_the_rollout(bench: Bench) -> None:
    seeds = []
    for seed in (0, 0, 1):
        bench.sample(ROW, seed=seed)
        seeds.append(sorted(one.seed for one in bench.requests if one.seed is not None))
    assert seeds[0] == seeds[1]
    assert not {*seeds[0]} & {*seeds[2]}
    assert len({*seeds[0]}) == 2 * G


@pytest.mark.parametrize("fault", ["calls another", "handles the context", "opens connections", "disconnects"])
def test_what_an_agent_survives_costs_it_nothing(bench: Bench, fault: str) -> None:
    result = bench.episode({**ROW, "fault": fault})
    assert result.score is not None
    assert (result.score.value, result.error) == (1.0, "")


@pytest.mark.parametrize(
    ("fault", "kind", "outcome", "text"),
    [
        ("never calls", "no_calls", Outcome.ERROR, "OPENAI_BASE_URL"),
        ("floods with calls", "limit_exceeded", Outcome.ERROR, "at most 5 calls"),
        ("exceeds the context", "limit_exceeded", Outcome.ERROR, "context"),
        ("raises", "error", Outcome.ERROR, "the tool is broken"),
        ("asks for what there is not", "error", Outcome.ERROR, "response_format"),
        ("exits", "exited", Outcome.ERROR, "status 3"),
        ("is killed", "exited", Outcome.ERROR, "SIGKILL"),
        ("hangs", "timeout", Outcome.TIMEOUT, "3 s"),
    ],
)
def test_a_fault_of_an_agent_is_an_outcome_and_never_a_score(
    bench: Bench, fault: str, kind: str, outcome: Outcome, text: str
) -> None:
    result = bench.episode({**ROW, "fault": fault})
    assert result.agent is not None
    assert result.score is not None
    assert (result.agent.outcome, result.score.outcome, result.score.value) == (kind, outcome, None)
    assert text in result.error
    assert result.stop_reason is StopReason.ERROR
