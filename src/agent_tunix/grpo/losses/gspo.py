"""GSPO: clipped importance ratios of whole sequences (https://arxiv.org/abs/2507.18071).

    J = E[ 1/G Σ_i min(s_i A_i, clip(s_i, 1 − ε, 1 + ε) A_i) ],   s_i = (π(o_i) / π_old(o_i))^(1/|o_i|)

These are equations 5 and 7. The ratio of a completion is the geometric mean of its tokens' ratios, so a completion is
clipped as a whole. The variant GSPO-token, equations 13 and 14, gives each token the ratio

    s_it = sg[s_i] · π(o_it) / sg[π(o_it)]

where sg stops the gradient. Its value equals s_i. With one advantage for the whole completion, as here, its gradient
equals that of s_i too, once the tokens are averaged over the completion. Only GSPO-token supports other aggregations.

Departures: log s_i is limited to ±20. If an episode of an agent is several rows of tokens, each row has a ratio of its
own, over its own tokens, and the episode's loss is the mean of its rows' losses, weighted by their numbers of tokens.
`gmpo` and the sequence weights of `sampler_mismatch` do the same.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LARGEST_LOG_RATIO, LossBatch, ObjectiveSettings, TokenLosses, log_ratios
from agent_tunix.grpo.losses.clipping import clipped_surrogate


def gspo(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the loss of each completion at each of its tokens, so that their mean over the completion is that loss."""
    ratios = jnp.broadcast_to(jnp.exp(_mean_log_ratios(batch)), batch.logps.shape)
    return clipped_surrogate(ratios, batch, settings)


def gspo_token(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the loss of each token."""
    sequence_ratios = jax.lax.stop_gradient(jnp.exp(_mean_log_ratios(batch)))
    ratios = sequence_ratios * jnp.exp(batch.logps - jax.lax.stop_gradient(batch.logps))
    return clipped_surrogate(ratios, batch, settings)


def _mean_log_ratios(batch: LossBatch) -> Float[Array, "B 1"]:
    """Return log s_i, or 0 for a completion without a token that takes part."""
    lengths = jnp.maximum(batch.mask.sum(axis=1, keepdims=True), 1)
    means = jnp.where(batch.mask, log_ratios(batch), 0.0).sum(axis=1, keepdims=True) / lengths
    return jnp.clip(means, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
