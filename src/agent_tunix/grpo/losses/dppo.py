"""DPPO: a trust region of divergences in place of the clip (https://arxiv.org/abs/2602.04879).

    J = E[ Σ_t M_it r_it A_i ],   r_it = π(o_it) / μ(o_it)
    M_it = 0  if  (A_i > 0 and r_it > 1 or A_i < 0 and r_it < 1) and D_it > δ,  else 1

D_it is the divergence of two distributions over two events, the sampled token and all others together:

    dppo_tv    D = |μ(o_it) − π(o_it)|
    dppo_kl    D = μ log(μ / π) + (1 − μ) log((1 − μ) / (1 − π))

A ratio far from 1 means little where the token is rare, and much where it is likely: these divergences tell the two
apart. `epsilon` is δ for A < 0, and `epsilon_high` for A > 0. verl's example has 0.15 for `dppo_tv` and 0.05 for
`dppo_kl`. μ is the policy that sampled.

Departures: log-ratios are limited to ±20, and 1 − π and 1 − μ are at least 1e-8 in the divergence. The approximation by
the k likeliest tokens is left out. The aggregation is that of the configuration.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, token_ratios

_LEAST_REST = 1e-8


def dppo_tv(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the token losses of DPPO with the total variation."""
    return _masked_by(jnp.abs(jnp.exp(batch.logps) - jnp.exp(_sampling_logps(batch))), batch, settings)


def dppo_kl(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the token losses of DPPO with the Kullback-Leibler divergence."""
    new, old = batch.logps, _sampling_logps(batch)
    of_others = -jnp.expm1(old) * (_log_of_rest(old) - _log_of_rest(new))
    return _masked_by(jnp.exp(old) * (old - new) + of_others, batch, settings)


def _masked_by(divergences: Float[Array, "B T"], batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    ratios, advantages = token_ratios(batch), batch.advantages_of_tokens
    low = (advantages < 0) & (ratios < 1) & (divergences > settings.epsilon)
    high = (advantages > 0) & (ratios > 1) & (divergences > settings.epsilon_high)
    return TokenLosses(-jnp.where(low | high, 0.0, ratios) * advantages, ratios, low, high)


def _sampling_logps(batch: LossBatch) -> Float[Array, "B T"]:
    return batch.logps if batch.old_logps is None else batch.old_logps


def _log_of_rest(logps: Float[Array, "B T"]) -> Float[Array, "B T"]:
    return jnp.log(jnp.maximum(-jnp.expm1(logps), _LEAST_REST))
