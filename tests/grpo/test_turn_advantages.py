"""Advantages of turns on their way to the tokens and into the losses."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings

from agent_tunix.environments import EpisodeResult, StopReason
from agent_tunix.grpo.losses import LossBatch, ObjectiveSettings
from agent_tunix.grpo.losses.batch import clean
from agent_tunix.grpo.losses.objective import LOSSES
from agent_tunix.grpo.losses.terms import is_near_policy, positive_nll
from agent_tunix.grpo.micro_batches import make_loss_inputs, place_micro_batches
from agent_tunix.grpo.training_rows import training_rows
from agent_tunix.grpo.turn_advantages import has_advantage, row_advantages
from agent_tunix.sampling.sampler import Completions
from tests.grpo.losses.support import Batch, batches, near_a_kink, token_loss
from tests.grpo.test_training_rows import MESH, B, G, complete, configure, record


def test_the_calls_of_an_agent_have_their_advantages_in_whatever_row_they_are() -> None:
    rollouts = record(5)
    completions, config = complete(rollouts), configure(micro_batch=1)
    counts = [max(1, len(calls)) for calls in rollouts]
    of_turns = np.full((B * G, max(counts)), np.nan)
    for n, count in enumerate(counts):
        of_turns[n, :count] = 100 * n + np.arange(count) + 1
    inputs, _ = make_loss_inputs(
        place_micro_batches(completions, config, MESH, None), completions, of_turns, config, MESH
    )
    found = sorted(
        triple
        for one in inputs
        for triple in zip(
            *(np.asarray(values)[np.asarray(one.mask)].tolist() for values in (one.tokens, one.sampled_logps)),
            np.asarray(one.advantages)[np.asarray(one.mask)].tolist(),
            strict=True,
        )
    )
    assert found == sorted(
        (token, logp, of_turns[n, k])
        for n, calls in enumerate(rollouts)
        for k, call in enumerate(calls)
        if call.finish_reason != "cancelled"
        for token, logp in zip(call.tokens, call.logps, strict=True)
    )
    assert completions.forks is not None
    assert len(completions.forks.owners)


def episodes(sampled: list[list[int]]) -> Completions:
    """Return episodes of one group, 1 at the tokens that the policy wrote."""
    width = max(map(len, sampled))
    mask = np.array([row + [0] * (width - len(row)) for row in sampled], bool)
    N = len(sampled)
    turns = [EpisodeResult([], StopReason.FINISHED, None, (), 3, 1)] * N
    return Completions(
        prompt_tokens=np.ones((N, 2), np.int32),
        prompt_lengths=np.full(N, 2, np.int32),
        tokens=np.ones((N, width), np.int32),
        lengths=np.array([len(row) for row in sampled], np.int32),
        ended=np.ones(N, bool),
        texts=[""] * N,
        logps=np.zeros((N, width), np.float32),
        sampled=mask,
        episodes=turns,
    )


def test_a_turn_is_a_run_of_sampled_tokens() -> None:
    config = configure()
    config.grpo.num_generations = 2
    completions = episodes([[1, 1, 0, 1, 0, 0, 1, 1], [1, 0, 1]])
    rows = training_rows(completions, config, MESH)
    of_rows = row_advantages(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, np.nan]]), rows, completions)
    assert of_rows.tolist() == [[1, 1, 0, 2, 0, 0, 3, 3], [4, 0, 5, 0, 0, 0, 0, 0]]
    assert has_advantage(of_rows, rows)
    assert not has_advantage(np.where(rows.mask, 0.0, of_rows + 1), rows)


@pytest.mark.parametrize("loss", ["grpo", "gspo_token", "cispo", "sapo", "reinforce"])
def test_a_loss_takes_the_advantage_of_each_token(loss: str) -> None:
    objective = ObjectiveSettings(loss, 0.2, 0.28)

    @settings(max_examples=15, deadline=None)
    @given(batches(shift=3.0))
    def check(batch: Batch) -> None:
        of_tokens = np.stack([np.roll(batch.advantages, t) for t in range(batch.mask.shape[1])], axis=1)
        of_each = [replace(batch, advantages=of_tokens[:, t]) for t in range(batch.mask.shape[1])]
        assume(not any(near_a_kink(one, objective) for one in of_each))
        losses = LOSSES[loss](as_jax(batch, of_tokens), objective).losses
        for i, t in np.argwhere(batch.mask):
            np.testing.assert_allclose(losses[i, t], token_loss(of_each[t], i, t, objective), rtol=1e-4, atol=1e-5)

    check()


def test_terms_and_masks_take_the_advantage_of_each_token() -> None:
    logps = np.full((1, 3), -1.0)
    batch = Batch(logps, logps + 2.0, logps, np.zeros(1), np.ones((1, 3), bool))
    jax_batch = as_jax(batch, np.array([[1.0, 0.0, -1.0]]))
    assert positive_nll(jax_batch).tolist() == [[1.0, 0.0, 0.0]]
    assert is_near_policy(jax_batch, 1.0).tolist() == [[True, True, False]]


def as_jax(batch: Batch, advantages: np.ndarray) -> LossBatch:
    return clean(
        LossBatch(
            logps=jnp.asarray(batch.logps, jnp.float32),
            old_logps=jnp.asarray(batch.old, jnp.float32),
            reference_logps=None,
            advantages=jnp.asarray(advantages, jnp.float32),
            mask=jnp.asarray(batch.mask),
            weights=jnp.ones(len(batch.mask)),
        )
    )
