"""Training on the rows of agents: equal to a plain pass over the recorded ids, and each episode counts once."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.environments import EpisodeResult, StopReason
from agent_tunix.grpo.loss import make_policy_loss
from agent_tunix.grpo.losses import AGGREGATIONS
from agent_tunix.grpo.micro_batches import make_loss_inputs, place_micro_batches
from agent_tunix.grpo.training_rows import divide_rows, training_rows
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.sampling.sampler import Completions
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.completions import completions_of
from agent_tunix.serving.rows import TokenRow, make_rows
from tests.serving.agents_at_random import run_agent
from tests.training.test_logps import assert_close, gradients, model

__all__ = ["model"]  # a fixture, in float64, so that rounding decides nothing

B, G, WIDTH, V, TEMPERATURE = 3, 4, 60, 53, 1.5
MESH = make_mesh([1, 1])
ADVANTAGES = np.random.default_rng(0).normal(size=B * G)


class Letters:
    """Tokenizer whose tokens are letters."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [chr(0x100 + token) for token in ids]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return ["".join(self.pieces(row)) for row in rows]

    def pad_id(self) -> int:
        return 0


def record(num_calls: int, *, num_agents: int = B * G, num_words: int = V) -> list[list[RecordedCall]]:
    """Return the calls of agents. The last one never calls."""

    def of_model(call: RecordedCall) -> RecordedCall:
        prompt, tokens = (tuple(token % num_words for token in ids) for ids in (call.prompt, call.tokens))
        return dataclasses.replace(call, prompt=prompt, tokens=tokens)

    agents = [run_agent(seed, num_calls).calls for seed in range(num_agents - 1)]
    return [[of_model(call) for call in calls] for calls in agents] + [[]]


def complete(rollouts: Sequence[Sequence[RecordedCall]], reasons: Sequence[StopReason] = ()) -> Completions:
    results = [EpisodeResult([], reason, None, (), 1, 1) for reason in reasons or [StopReason.FINISHED] * len(rollouts)]
    letters: Any = Letters()
    return completions_of(rollouts, results, letters, max_row_tokens=WIDTH)


def configure(mode: str = "token-mean", *, loss: str = "grpo", micro_batch: int = B) -> Config:
    config = Config()
    config.grpo.num_generations, config.grpo.loss_agg_mode, config.grpo.beta, config.grpo.loss = G, mode, 0.0, loss
    config.training.batch_size, config.training.micro_batch_size = B, micro_batch
    config.generation.temperature = TEMPERATURE
    return config


def weigh(lengths_N: np.ndarray, mode: str) -> np.ndarray:
    """Return the weight of a token of each episode, from the equations."""
    present = lengths_N > 0
    of_prompts = lengths_N.reshape(B, G).sum(1)
    weights: dict[str, np.ndarray] = {
        "sequence-mean-token-mean": 1 / (present.sum() * np.maximum(lengths_N, 1)),
        "token-mean": np.full(B * G, 1 / lengths_N.sum()),
        "prompt-mean-token-mean": np.repeat(1 / ((of_prompts > 0).sum() * of_prompts), G),
        "sequence-mean-token-sum": np.full(B * G, 1 / present.sum()),
        "sequence-mean-token-sum-norm": np.full(B * G, 1 / (B * G * WIDTH)),
        "length-weighted-token-sum": 1 / (np.maximum(lengths_N, 1) * (1 / lengths_N[present]).sum() * WIDTH),
    }
    return weights[mode]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "loss", "micro_batch", "observation_nll"),
    [("sliding", "grpo", B, 0.0), ("quantised", "gspo", 1, 0.3)],
    indirect=["model"],
)
def test_the_gradient_of_recorded_rows_is_that_of_a_plain_pass(
    model: Any, loss: str, micro_batch: int, observation_nll: float
) -> None:
    mode = "sequence-mean-token-mean"
    rollouts = record(4)
    completions, config = complete(rollouts), configure(mode, loss=loss, micro_batch=micro_batch)
    config.grpo.observation_nll = observation_nll
    placed = place_micro_batches(completions, config, MESH, None)
    inputs, _ = make_loss_inputs(placed, completions, ADVANTAGES, config, MESH)
    assert inputs[0].num_parts > 1
    assert len(inputs) == B // micro_batch

    rows = [(owner, row) for owner, calls in enumerate(rollouts) for row in make_rows(calls)]
    weights_N = weigh(np.array([count_sampled(make_rows(calls)) for calls in rollouts]), mode) * ADVANTAGES
    num_observed = [
        sum(len(row.tokens) for row in make_rows(calls)) - count_sampled(make_rows(calls)) for calls in rollouts
    ]
    observed_N = observation_nll * weigh(np.array(num_observed), mode)
    width = max(len(row.prompt) + len(row.tokens) for _, row in rows)
    ids, weights = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width - 1))
    for number, (owner, row) in enumerate(rows):
        n = len(row.prompt)
        ids[number, : n + len(row.tokens)] = row.prompt + row.tokens
        weights[number, n - 1 : n - 1 + len(row.tokens)] = np.where(row.sampled, weights_N[owner], observed_N[owner])

    def plain(model: Any) -> Any:
        mask = np.broadcast_to(np.tril(np.ones((width, width), bool)), (len(ids), width, width))
        logits, _ = model(ids, np.broadcast_to(np.arange(width), ids.shape), None, mask)
        logps = jax.nn.log_softmax(logits[:, :-1] / TEMPERATURE)
        return -(jnp.take_along_axis(logps, ids[:, 1:, None], 2)[..., 0] * weights).sum()

    policy_loss = make_policy_loss(config)

    def of_rows(model: Any) -> Any:
        return sum(policy_loss(model, one)[0] for one in inputs) / len(inputs)

    # The weights of completions are float32, and the gradients up to 0.1.
    assert_close(gradients(model, of_rows), gradients(model, plain), atol=1e-7)


def count_sampled(rows: Sequence[TokenRow]) -> int:
    return sum(sum(row.sampled) for row in rows)


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("micro_batch", [B, 1])
def test_an_episode_counts_once_whatever_its_number_of_rows(mode: str, micro_batch: int) -> None:
    rollouts = record(5)
    completions, config = complete(rollouts), configure(mode, micro_batch=micro_batch)
    rows = training_rows(completions, config, MESH)
    placed = place_micro_batches(completions, config, MESH, None)
    inputs, _ = make_loss_inputs(placed, completions, ADVANTAGES, config, MESH)
    counts = np.concatenate([np.asarray(one.mask).sum(1) for one in inputs])
    weights = np.concatenate([np.asarray(one.weights) for one in inputs]) / len(inputs)
    lengths_N = np.array([count_sampled(make_rows(calls)) for calls in rollouts])
    found = np.bincount(rows.owners, weights * counts)
    np.testing.assert_allclose(found, weigh(lengths_N, mode) * lengths_N, rtol=1e-6)
    advantages = np.concatenate([np.asarray(one.advantages) for one in inputs])
    np.testing.assert_allclose(advantages, ADVANTAGES[rows.owners], rtol=1e-6)


def test_rows_on_the_device_hold_every_sampled_token_once_with_its_log_probability() -> None:
    rollouts = record(5)
    completions, config = complete(rollouts), configure(micro_batch=1)
    inputs, _ = make_loss_inputs(
        place_micro_batches(completions, config, MESH, None), completions, ADVANTAGES, config, MESH
    )
    found = sorted(
        pair
        for one in inputs
        for pair in zip(
            np.asarray(one.tokens)[np.asarray(one.mask)].tolist(),
            np.asarray(one.sampled_logps)[np.asarray(one.mask)].tolist(),
            strict=True,
        )
    )
    trained = [call for calls in rollouts for call in calls if call.finish_reason != "cancelled"]
    assert found == sorted(pair for call in trained for pair in zip(call.tokens, call.logps, strict=True))


def test_truncated_episodes_are_masked_with_all_their_rows() -> None:
    rollouts, config = record(5), configure()
    config.grpo.mask_truncated = True
    reasons = [StopReason.MAX_TURNS] * G + [StopReason.FINISHED] * (2 * G)
    rows = training_rows(complete(rollouts, reasons), config, MESH)
    of_all = [count_sampled(make_rows(calls)) for calls in rollouts]
    assert rows.lengths_of_completions.tolist() == [0] * G + of_all[G:]


@pytest.mark.parametrize("missing", [np.nan, -np.inf])
def test_a_token_whose_log_probability_is_unknown_does_not_train(missing: float) -> None:
    """Neither in completions nor in forks, and it counts in no weight."""
    completions, config = complete(record(5)), configure()
    assert completions.forks is not None
    for arrays in (completions, completions.forks):
        row, token = np.argwhere(arrays.mask)[0]
        arrays.logps[row, token] = missing
    before, after = training_rows(complete(record(5)), config, MESH), training_rows(completions, config, MESH)
    assert before.mask.sum() - after.mask.sum() == 2
    assert before.lengths_of_completions.sum() - after.lengths_of_completions.sum() == 2
    assert np.isfinite(after.logps[after.mask]).all()


def test_observed_tokens_are_those_that_the_policy_did_not_write() -> None:
    """Each once, in completions and forks alike; every episode that has some weighs the same."""
    rollouts, config = record(5), configure()
    assert training_rows(complete(rollouts), config, MESH).observation_weights is None
    config.grpo.observation_nll = 0.05
    rows = training_rows(complete(rollouts), config, MESH)
    weights = rows.observation_weights
    assert rows.observed is not None
    assert weights is not None
    of_calls = [
        [row.tokens[n] for row in make_rows(calls) for n in range(len(row.tokens)) if not row.sampled[n]]
        for calls in rollouts
    ]
    found = [rows.tokens[(rows.owners == n)[:, None] & rows.observed].tolist() for n in range(B * G)]
    assert [sorted(tokens) for tokens in found] == [sorted(tokens) for tokens in of_calls]
    sums = np.bincount(rows.owners, weights.sum(axis=1))
    num_episodes = sum(bool(tokens) for tokens in of_calls)
    np.testing.assert_allclose(sums, [bool(tokens) / num_episodes for tokens in of_calls])


def test_completions_of_one_row_share_the_prompt_that_their_agents_share() -> None:
    def call(prompt: Sequence[int], tokens: Sequence[int]) -> RecordedCall:
        return RecordedCall(tuple(prompt), tuple(tokens), (0.0,) * len(tokens), 0, "stop")

    rollouts = [[call([1 + n // G] * (n // G + 1), [9, n])] for n in range(B * G)]
    rollouts[0], rollouts[-1] = [], []
    shared = training_rows(complete(rollouts), configure(), MESH)
    assert (shared.group, shared.num_parts, len(shared.owners)) == (G, 1, B * G)
    assert shared.prompt_lengths.tolist() == [1, 2, 3]
    assert shared.prompt_tokens[:, -1].tolist() == [1, 2, 3]
    rollouts[5] = [call([7], [9])]
    alone = training_rows(complete(rollouts), configure(), MESH)
    assert (alone.group, alone.num_parts, len(alone.owners)) == (1, 1, B * G)


@pytest.mark.parametrize("usual", [1, 2, 3, 8, 12, 64])
@pytest.mark.parametrize("shards", [1, 2, 4])
def test_few_numbers_of_rows_serve_all_steps(usual: int, shards: int) -> None:
    found = {divide_rows(num_rows, usual, shards) for num_rows in range(usual, 8 * usual + 1)}
    assert len(found) <= 13
    for num_rows in range(usual, 8 * usual + 1):
        size, num_parts = divide_rows(num_rows, usual, shards)
        assert num_rows <= size <= max(1.25 * num_rows, num_rows + 1) + num_parts * shards
        assert size % num_parts == 0
        assert size // num_parts <= usual
        assert usual % shards or size // num_parts % shards == 0
