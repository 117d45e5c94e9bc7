"""Our own served policy as an engine: its replies are those of the samplers in this process."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.engines.source import EngineSource, make_wire
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.serving.app import create_app
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings
from tests.engines.sources import continuous

CONTEXT, LENGTH = 96, 16
PROMPTS = ["What is 3 + 4?", "Tom has 9 apples and eats 2."]


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    mesh = make_mesh([1, 1])
    return Sampler(load_policy(EMBEDDED_MODEL, ModelConfig(), mesh), Tokenizer(EMBEDDED_MODEL), mesh)


@pytest.fixture(scope="module")
def here(sampler: Sampler) -> Iterator[ContinuousSampler]:
    with continuous(sampler, max_context=CONTEXT, num_places=4) as source:
        yield source


@pytest.fixture(scope="module")
def engine(sampler: Sampler) -> Iterator[EngineSource]:
    settings = PolicySettings(port=0, max_context=CONTEXT)
    with continuous(sampler, max_context=CONTEXT, num_places=4) as source:
        app = create_app(PolicyService(source, sampler.tokenizer, settings))
        with serving(app, settings) as url, EngineSource([url], make_wire("agent_tunix"), timeout_s=60) as engine:
            engine.wait_until_ready()
            yield engine


def answers(source: ContinuousSampler | EngineSource, requests: list[TokenRequest]) -> list[TokenReply]:
    futures = [source.submit(request) for request in requests]
    return [future.result(120) for future in futures]


@pytest.fixture(scope="module")
def prompts(sampler: Sampler) -> list[tuple[int, ...]]:
    return [tuple(sampler.tokenizer.encode(text)) for text in PROMPTS]


@pytest.mark.parametrize(
    ("seed", "options"),
    [(7, {}), (2**40 + 7, {"temperature": 0.7, "top_k": 5}), (2**64 - 3, {"top_p": 0.8, "min_p": 0.01})],
)
def test_seeds_give_the_tokens_of_this_process(
    engine: EngineSource, here: ContinuousSampler, prompts: list[tuple[int, ...]], seed: int, options: dict[str, float]
) -> None:
    requests = [TokenRequest(prompt, LENGTH, seed=seed, **options) for prompt in prompts]  # type: ignore[arg-type]
    for one, other in zip(answers(engine, requests), answers(here, requests), strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logps, other.logps, rtol=0, atol=1e-4)
        assert [float(np.float32(logp)) for logp in one.logps] == list(one.logps)  # nothing is lost on the way
        assert one.finish_reason == other.finish_reason


def test_scores_are_the_log_probabilities_of_what_was_sampled(
    engine: EngineSource, prompts: list[tuple[int, ...]]
) -> None:
    (reply,) = answers(engine, [TokenRequest(prompts[0], LENGTH, seed=1)])
    whole = (*prompts[0], *reply.tokens)
    (scores,) = engine.each(lambda wire, client: wire.score(client, engine.base_model, whole)).values()
    assert len(scores) == len(whole) - 1
    np.testing.assert_allclose(scores[len(prompts[0]) - 1 :], reply.logps, rtol=0, atol=1e-4)


def test_greedy_tokens_are_those_of_the_sampler(
    engine: EngineSource, sampler: Sampler, prompts: list[tuple[int, ...]]
) -> None:
    replies = answers(engine, [TokenRequest(prompt, LENGTH, temperature=0.0) for prompt in prompts])
    whole = sampler.sample(
        prompts, jax.random.key(0), SamplingParams(LENGTH, greedy=True), num_generations=1, max_prompt_length=48
    )
    for row, reply in enumerate(replies):
        length = whole.lengths[row]
        assert list(reply.tokens) == whole.tokens[row, :length].tolist()
        assert (reply.finish_reason == "stop") == bool(whole.ended[row])
