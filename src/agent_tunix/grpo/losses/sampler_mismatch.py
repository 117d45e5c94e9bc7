"""Disagreement of the program that sampled with the program that trains, and its correction.

Both compute log π(o_it) of the same weights, but in other batches, layouts and precisions, so that the results differ a
little. With μ the sampler's probabilities and π the trainer's before the update, the divergence is estimated by

    KL(μ ‖ π) ≈ mean_it (exp(d_it) − d_it − 1),   d_it = log π(o_it) − log μ(o_it)

which is k3 of http://joschu.net/blog/kl-approx.html. Truncated importance sampling multiplies the policy loss by

    token       w_it = min(exp(d_it), C)
    sequence    w_it = min(exp(Σ_s d_is), C)

without gradient (https://fengyao.notion.site/off-policy-rl, "Your Efficient RL Framework Secretly Brings You Off-Policy
RL Training"; the bound is that of V-trace, https://arxiv.org/abs/1802.01561).

Departure: with several updates on a batch there is no correction, because the importance ratios are then relative to
the sampler's probabilities. d_it and its sum are limited to ±20.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LARGEST_LOG_RATIO, LossBatch, Number


def mismatch_kl(batch: LossBatch) -> Float[Array, "B T"]:
    """Return exp(d) − d − 1 of each token."""
    differences = _differences(batch)
    return jnp.expm1(differences) - differences


def token_weights(batch: LossBatch, cap: Number) -> Float[Array, "B T"]:
    """Return the truncated importance weight of each token."""
    return jnp.minimum(jnp.exp(_differences(batch)), cap)


def sequence_weights(batch: LossBatch, cap: Number) -> Float[Array, "B 1"]:
    """Return the truncated importance weight of each completion."""
    sums = jnp.where(batch.mask, _differences(batch), 0.0).sum(axis=1, keepdims=True)
    return jnp.minimum(jnp.exp(jnp.clip(sums, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)), cap)


CORRECTIONS: dict[str, Callable[[LossBatch, Number], Float[Array, "B _"]]] = {
    "token": token_weights,
    "sequence": sequence_weights,
}


def _differences(batch: LossBatch) -> Float[Array, "B T"]:
    assert batch.sampled_logps is not None
    differences = jax.lax.stop_gradient(batch.logps) - batch.sampled_logps
    return jnp.clip(differences, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
