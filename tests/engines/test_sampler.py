"""Batches and episodes from a source of tokens are those of the sampler in this process."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.engines.episodes import EngineEpisodeSampler
from agent_tunix.engines.sampler import EngineSampler, WaitingSource
from agent_tunix.errors import EngineError
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.episodes import EpisodeLimits, EpisodeSampler
from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.sampling.sampler import BatchSampler, Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from tests.engines.sources import FailingSource, continuous
from tests.raising import raises
from tests.training.test_episodes import KEY, MAX_TURNS, PROMPTS, G, L, Letters, P, T, Talker, Threaded, to_ids
from tests.training.test_logps import PLAIN

GREEDY, SAMPLED = SamplingParams(T, greedy=True), SamplingParams(T, temperature=1.5)
BATCH = PromptBatch(
    prompts=PROMPTS,
    messages=[[{"role": "user", "content": prompt}] for prompt in PROMPTS],
    token_ids=[to_ids(prompt) for prompt in PROMPTS],
    columns=[{"kind": Talker}] * len(PROMPTS),
)


class Letter(Letters):
    """A tokenizer of letters, of single texts too."""

    def decode(self, ids: Any) -> str:
        return self.decode_batch([ids])[0]


@pytest.fixture(scope="module")
def sampler() -> Iterator[Sampler]:
    """With weights large enough that rounding decides nothing."""
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        model = Decoder(PLAIN, dtype=jnp.dtype("float32"), param_dtype=jnp.dtype("float32"), rngs=nnx.Rngs(0))
        nnx.update(model, jax.tree.map(lambda x: x * 15 if x.ndim > 1 else x + 0.3, nnx.state(model)))
        yield Sampler(model, Letter(), make_mesh([1, 1]))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def source(sampler: Sampler) -> Iterator[ContinuousSampler]:
    with continuous(sampler, max_context=P + L) as opened:
        yield opened


def sample(sampler: BatchSampler, sampling: SamplingParams) -> Completions:
    return sampler.sample_batch(BATCH, KEY, sampling, num_generations=G, max_prompt_length=P)


def assert_equal(found: Completions, expected: Completions) -> None:
    for name in ("prompt_tokens", "prompt_lengths", "tokens", "lengths", "ended"):
        array, other = getattr(found, name), getattr(expected, name)
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        np.testing.assert_array_equal(array, other, err_msg=name)
    assert found.texts == expected.texts
    np.testing.assert_allclose(found.logps, expected.logps, atol=1e-5)
    assert found.logps.dtype == expected.logps.dtype


def test_greedy_completions_are_those_of_the_sampler(sampler: Sampler, source: ContinuousSampler) -> None:
    assert_equal(sample(EngineSampler(source, sampler), GREEDY), sample(sampler, GREEDY))


def test_sampled_completions_depend_on_the_key_alone(sampler: Sampler, source: ContinuousSampler) -> None:
    engine = EngineSampler(source, sampler)
    first = sample(engine, SAMPLED)
    assert_equal(sample(engine, SAMPLED), first)
    assert len(set(first.texts)) > G  # the completions of a prompt have seeds of their own
    others = engine.sample_batch(BATCH, jax.random.key(4), SAMPLED, num_generations=G, max_prompt_length=P)
    assert others.texts != first.texts


def test_an_unknown_log_probability_stays_unknown(sampler: Sampler, source: ContinuousSampler) -> None:
    class Forgetful:
        def submit(self, request: TokenRequest, on_part: Any = None) -> Future[TokenReply]:
            known, reply = source.submit(request).result(), Future[TokenReply]()
            reply.set_result(replace(known, logps=(float("nan"), *known.logps[1:])))
            return reply

    found = sample(EngineSampler(Forgetful(), sampler), GREEDY)
    assert np.isnan(found.logps[:, 0]).all()
    assert not np.isnan(found.logps[:, 1:]).any()


def make_episodes(sampler: Sampler, source: TokenSource | None = None) -> EpisodeSampler:
    environments: Any = Threaded()
    letters: Any = Letter()
    limits = EpisodeLimits(MAX_TURNS, L, 12)
    if source is None:
        return EpisodeSampler(sampler, environments, letters, limits)
    return EngineEpisodeSampler(source, sampler, environments, letters, limits)


def test_greedy_episodes_are_those_of_the_sampler(sampler: Sampler, source: ContinuousSampler) -> None:
    expected = sample(make_episodes(sampler), GREEDY)
    found = sample(make_episodes(sampler, source), GREEDY)
    assert_equal(found, expected)
    np.testing.assert_array_equal(found.sampled, expected.sampled)
    assert found.episodes is not None
    assert expected.episodes is not None
    assert [one.stop_reason for one in found.episodes] == [one.stop_reason for one in expected.episodes]
    assert [one.messages for one in found.episodes] == [one.messages for one in expected.episodes]


def test_sampled_episodes_do_not_depend_on_the_time_that_environments_take(
    sampler: Sampler, source: ContinuousSampler
) -> None:
    episodes = make_episodes(sampler, source)
    first = sample(episodes, SAMPLED)
    assert_equal(sample(episodes, SAMPLED), first)
    assert first.episodes is not None
    assert len({one.num_turns for one in first.episodes}) >= 3  # or nothing above were tested


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("has_episodes", [False, True])
def test_a_failure_cancels_what_is_being_sampled(sampler: Sampler, number: int, has_episodes: bool) -> None:
    source = FailingSource(number)
    engine: BatchSampler = EngineSampler(source, sampler)
    if has_episodes:
        engine = make_episodes(sampler, source)
    with raises(EngineError, "engine_failed"):
        sample(engine, SAMPLED)
    assert all(future.done() for future in source.futures)


def test_a_waiting_source_tells_that_the_engines_failed() -> None:
    waiting = WaitingSource(FailingSource(1))
    waiting.submit(TokenRequest((1,), T))
    with raises(EngineError, "engine_failed"):
        waiting.serve_until(lambda: False)


def test_a_waiting_source_wakes_when_it_is_told(sampler: Sampler, source: ContinuousSampler) -> None:
    waiting, done = WaitingSource(source, [5]), threading.Event()
    replies: list[TokenReply] = []

    def end(reply: Future[TokenReply]) -> None:
        replies.append(reply.result())
        done.set()
        waiting.wake()

    request = TokenRequest(tuple(to_ids("hello")), T, temperature=0.0)
    waiting.submit(request).add_done_callback(end)
    waiting.serve_until(done.is_set)
    assert replies[0].tokens
