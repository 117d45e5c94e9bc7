"""The sampler of training: what it promises of keys, ends, padding and log-probabilities."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.sampler import Completions, Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from tests.training.reference_sampler import Logits, complete, logits_of, logps_of

pytestmark = pytest.mark.slow

P, T, G = 64, 24, 3
SAMPLED = SamplingParams(T, temperature=0.7)
GREEDY = SamplingParams(T, greedy=True)


def draw(
    sampler: Sampler, prompts: Sequence[Sequence[int]], seed: int, sampling: SamplingParams = SAMPLED
) -> Completions:
    generations = 1 if sampling.greedy else G
    key = jax.random.key(seed)
    return sampler.sample(prompts, key, sampling, num_generations=generations, max_prompt_length=P)


@pytest.fixture(scope="module")
def drawn(sampler: Sampler, prompts: list[list[int]]) -> Completions:
    return draw(sampler, prompts, seed=1)


@pytest.fixture(scope="module")
def greedy(sampler: Sampler, prompts: list[list[int]]) -> Completions:
    return draw(sampler, prompts, seed=1, sampling=GREEDY)


@pytest.fixture(scope="module")
def logits(policy: nnx.Module) -> Logits:
    """The whole forward pass for every token of every row by itself: no cache, no batch, no padding on the left."""
    return logits_of(policy, P + T)


def counted(completions: Completions) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(completions.tokens, completions.lengths, strict=True)]


def test_greedy_equals_a_loop_without_cache_on_ragged_prompts(
    greedy: Completions, logits: Logits, prompts: list[list[int]], tokenizer: Tokenizer
) -> None:
    assert len({len(prompt) for prompt in prompts}) > 1
    ends: Any = {"pad_id": tokenizer.pad_id(), "eos_ids": tokenizer.eos_ids}
    key = jax.random.key(1)
    assert counted(greedy) == [complete(logits, prompt, 0, key, GREEDY, **ends) for prompt in prompts]


def test_the_end_of_sequence_token_counts_and_nothing_after_it(drawn: Completions, tokenizer: Tokenizer) -> None:
    assert drawn.ended.any()
    for tokens, mask, length, ended in zip(drawn.tokens, drawn.mask, drawn.lengths, drawn.ended, strict=True):
        assert mask.tolist() == [place < length for place in range(T)]
        assert ended == (tokens[length - 1] in tokenizer.eos_ids)
        assert not np.isin(tokens[: length - 1], tokenizer.eos_ids).any()
        assert (tokens[length:] == tokenizer.pad_id()).all()


def test_the_key_decides_the_completions(sampler: Sampler, prompts: list[list[int]], drawn: Completions) -> None:
    again, other = (draw(sampler, prompts, seed=seed) for seed in (1, 2))
    assert np.array_equal(again.tokens, drawn.tokens)
    assert again.texts == drawn.texts
    assert not np.array_equal(other.tokens, drawn.tokens)


def test_the_copies_of_a_prompt_differ(drawn: Completions) -> None:
    for start in range(0, len(drawn.texts), G):
        assert (drawn.prompt_tokens[start : start + G] == drawn.prompt_tokens[start]).all()
    assert any(len(set(drawn.texts[start : start + G])) > 1 for start in range(0, len(drawn.texts), G))


def test_texts_leave_out_special_tokens(drawn: Completions, tokenizer: Tokenizer) -> None:
    assert not any("<|im_end|>" in text or "<|endoftext|>" in text for text in drawn.texts)
    assert drawn.texts == [tokenizer.decode(ids) for ids in counted(drawn)]


def test_the_padding_token_is_never_sampled(
    policy: nnx.Module, tokenizer: Tokenizer, mesh: jax.sharding.Mesh, prompts: list[list[int]]
) -> None:
    """Every weight 0 makes all tokens equally likely: without the rule one token in 1024 would be padding."""
    graphdef, state = nnx.split(policy)
    flat = Sampler(nnx.merge(graphdef, jax.tree.map(jnp.zeros_like, state)), tokenizer, mesh)
    found = flat.sample(prompts, jax.random.key(0), SamplingParams(T), num_generations=256, max_prompt_length=P)
    assert found.mask.sum() > 20_000
    assert not (found.tokens[found.mask] == tokenizer.pad_id()).any()


def test_any_of_several_end_tokens_ends(
    policy: nnx.Module, tokenizer: Tokenizer, mesh: jax.sharding.Mesh, prompts: list[list[int]], greedy: Completions
) -> None:
    second = int(greedy.tokens[0, 1])
    several = Sampler(policy, tokenizer, mesh, [*tokenizer.eos_ids, second])
    found = draw(several, prompts[:1], seed=1, sampling=GREEDY)
    assert found.ended[0]
    assert counted(found)[0] == counted(greedy)[0][: counted(greedy)[0].index(second) + 1]


def test_a_prompt_that_is_too_long_is_refused_rather_than_cut(sampler: Sampler) -> None:
    with pytest.raises(ValueError, match="broadcast"):
        sampler.sample([[5] * (P + 1)], jax.random.key(0), GREEDY, num_generations=1, max_prompt_length=P)


def test_log_probabilities_have_the_sampling_temperature(
    policy: Any, logits: Logits, prompts: list[list[int]], drawn: Completions
) -> None:
    """The sampler's and those of the training loss; the vanilla engine leaves the temperature out."""
    assert drawn.logps.dtype == np.float32
    tokens = jnp.asarray(drawn.tokens)
    trained = completion_statistics(
        policy, jnp.asarray(drawn.prompt_tokens), jnp.asarray(drawn.prompt_lengths), tokens, temperature=0.7
    )
    logps_NT = np.asarray(trained.logps)
    for row, ids in enumerate(counted(drawn)):
        expected = logps_of(logits, prompts[row // G], ids, 0.7)
        np.testing.assert_allclose(drawn.logps[row, : len(ids)], expected, atol=1e-4)
        np.testing.assert_allclose(logps_NT[row, : len(ids)], expected, atol=1e-4)
        assert (drawn.logps[row, len(ids) :] == 0).all()
