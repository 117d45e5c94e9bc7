"""SAPO: a smooth gate in place of the clip (https://arxiv.org/abs/2511.20347).

    J = E[ 1/G Σ_i 1/|o_i| Σ_t f(r_it) A_i ],   f(r) = 4/τ · σ(τ (r − 1)),   τ = τ_pos for A_i > 0, else τ_neg

σ is the logistic function and r_it = π(o_it) / π_old(o_it). The gradient of f at r = 1 is 1, as that of r, and falls
smoothly as r moves away in either direction. τ_neg above τ_pos makes it fall faster for tokens that get less likely.

Departure: log-ratios are limited to ±20.
"""

import jax
import jax.numpy as jnp

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, token_ratios, unclipped


def sapo(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the token losses of SAPO. No token is clipped."""
    ratios, advantages = token_ratios(batch), batch.advantages_of_tokens
    tau = jnp.where(advantages > 0, settings.tau_positive, settings.tau_negative)
    return unclipped(-4.0 / tau * jax.nn.sigmoid(tau * (ratios - 1.0)) * advantages, ratios)
