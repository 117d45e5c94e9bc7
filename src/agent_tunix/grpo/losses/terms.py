"""Optional parts of the objective: masks of the policy loss, and terms that are added to it.

Each belongs to a field of `ObjectiveSettings`. A field that is None leaves the part out of the program.

`top_entropy_share` ρ keeps the policy loss of the tokens whose entropy is among the highest share ρ,
https://arxiv.org/abs/2506.01939. The loss is not divided by the share that remains.

`off_policy_threshold` δ drops the policy loss of completions that have become unlikely, off-policy sequence masking in
section 3.1 of https://arxiv.org/abs/2512.02556 (DeepSeek-V3.2):

    M_i = 0  if  A_i < 0  and  1/|o_i| Σ_t log(π_old(o_it) / π(o_it)) > δ,  else 1

`entropy_coefficient` α subtracts α H, with H the entropy of the next token, aggregated like the loss. The coefficient
may follow a target H*, as in https://arxiv.org/abs/2505.22312 (Skywork-OR1):

    α = c max(0, 1 − Ĥ / H*),   Ĥ = −1/Σ_i |o_i| Σ_i Σ_t log π_old(o_it)

`positive_nll` μ adds μ Σ_i w_i Σ_t −log π(o_it) over completions with A_i > 0, the positive-example loss of
https://arxiv.org/abs/2504.05118 (VAPO).

`observation_nll` λ adds the cross-entropy of the tokens that tools and environments wrote, ECHO of
https://arxiv.org/abs/2605.24517. With O_i these tokens of episode i, and N' the number of episodes that have any,

    λ 1/N' Σ_i 1/|O_i| Σ_{t ∈ O_i} −log π(o_it)

Failed episodes also teach what the world answers. The weights do not depend on the aggregation of the policy loss, so
that the sum over the batch is in nats a token. rLLM's λ is 0.05.

Departures: the threshold of ρ is that of the micro-batch, so `training.micro_batch_size` matters a little. Skywork-OR1
moves its coefficient by a fixed amount each step. Here it is proportional to the missing entropy, so that a step does
not depend on earlier steps. VAPO's positive examples are correct answers, and their loss is a separate mean. Here they
are completions better than their baseline, with the weights of the aggregation. ECHO leaves out warnings of its
harness. Here O_i are all tokens after the prompt that the policy did not write, those of the chat template between two
turns included, and π is at the sampling temperature. A truncated episode counts even with `grpo.mask_truncated`.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agent_tunix.grpo.losses.batch import LossBatch, Number, log_ratios


def has_top_entropy(batch: LossBatch, share: Number) -> Bool[Array, "B T"]:
    """Return True at the share of tokens with the highest entropy, and at tokens that tie with the last of them."""
    assert batch.entropies is not None
    highest = jnp.sort(jnp.where(batch.mask, batch.entropies, -jnp.inf).reshape(-1), descending=True)
    # A share like 0.2 of 10 tokens is 2 of them, although 0.2 * 10 in float32 may be a little more.
    num_kept = jnp.ceil(share * batch.mask.sum() - 1e-4).astype(jnp.int32)
    return batch.entropies >= highest[jnp.maximum(num_kept - 1, 0)]


def is_near_policy(batch: LossBatch, threshold: Number) -> Bool[Array, "B 1"] | Bool[Array, "B T"]:
    """Return False for completions with a negative advantage that are less likely by more than δ nats a token."""
    lengths = jnp.maximum(batch.mask.sum(axis=1, keepdims=True), 1)
    distances = -jnp.where(batch.mask, log_ratios(batch), 0.0).sum(axis=1, keepdims=True) / lengths
    return (batch.advantages_of_tokens >= 0) | (distances <= threshold)


def negative_entropy(batch: LossBatch) -> Float[Array, "B T"]:
    """Return −H of each token."""
    assert batch.entropies is not None
    return -batch.entropies


def positive_nll(batch: LossBatch) -> Float[Array, "B T"]:
    """Return −log π of the tokens of completions with a positive advantage, and 0 elsewhere."""
    return jnp.where(batch.advantages_of_tokens > 0, -batch.logps, 0.0)


def observation_nll(batch: LossBatch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return the weighted sum of −log π over the tokens that the policy did not write, and the sum of their weights.

    Args:
        batch: The batch as it arrived, because `clean` removes these tokens' log-probabilities.
    """
    assert batch.observation_weights is not None
    weights = batch.observation_weights
    # A NaN at a token of weight 0 must reach neither the sum nor its gradient.
    return -(weights * jnp.where(weights > 0, batch.logps, 0.0)).sum(), weights.sum()


# Each takes the batch and the value of the field, and returns True where the policy loss counts.
MASKS: dict[str, Callable[[LossBatch, Number], Bool[Array, "..."]]] = {
    "top_entropy_share": has_top_entropy,
    "off_policy_threshold": is_near_policy,
}
# The field is the coefficient of the values that the function returns.
TERMS: dict[str, Callable[[LossBatch], Float[Array, "B T"]]] = {
    "entropy_coefficient": negative_entropy,
    "positive_nll": positive_nll,
}
