"""GMPO: the geometric mean of clipped token ratios (https://arxiv.org/abs/2507.20673).

    J = E[ 1/G Σ_i (Π_t ρ_it)^(1/|o_i|) A_i ]
    log ρ_it = min(log r_it, ε_high) for A_i > 0,   max(log r_it, −ε) for A_i < 0,   r_it = π(o_it) / π_old(o_it)

Tokens are clipped one by one, on the logarithmic scale, before the mean is taken. ε and ε_high therefore bound
log-ratios, not ratios. GSPO takes the mean first and clips the completion. The paper's bounds are exp(±0.4).

Departure: log-ratios are limited to ±20.
"""

import jax.numpy as jnp

from agent_tunix.grpo.losses.batch import LARGEST_LOG_RATIO, LossBatch, ObjectiveSettings, TokenLosses, log_ratios


def gmpo(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the loss of each completion at each of its tokens, so that their mean over the completion is that loss."""
    logs, advantages = jnp.clip(log_ratios(batch), -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO), batch.advantages_of_tokens
    clipped_low = (advantages < 0) & (logs < -settings.epsilon)
    clipped_high = (advantages > 0) & (logs > settings.epsilon_high)
    bounded = jnp.where(clipped_low, -settings.epsilon, jnp.where(clipped_high, settings.epsilon_high, logs))
    lengths = jnp.maximum(batch.mask.sum(axis=1, keepdims=True), 1)
    means = jnp.where(batch.mask, bounded, 0.0).sum(axis=1, keepdims=True) / lengths
    losses = jnp.broadcast_to(-jnp.exp(means) * advantages, logs.shape)
    return TokenLosses(losses, jnp.exp(logs), clipped_low, clipped_high)
