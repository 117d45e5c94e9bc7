"""CISPO: REINFORCE with clipped importance weights (MiniMax-M1, https://arxiv.org/abs/2506.13585, equations 4 and 5).

    J = E[ 1/Σ_i |o_i| Σ_i Σ_t sg[min(r_it, 1 + ε_high)] A_i log π(o_it) ],   r_it = π(o_it) / π_old(o_it)

sg stops the gradient. The bound limits the weight of a token and, unlike GRPO's clip, removes no token's gradient.
ScaleRL (https://arxiv.org/abs/2510.13786) uses this loss too. Its average is `prompt-mean-token-mean` of `aggregation`
and its advantage `batch_centred` of `rewards.advantages`.

Departures: MiniMax-M1 also has a lower bound 1 − ε_low, which it sets so low that it never acts. Here there is none, as
in ScaleRL. Log-ratios are limited to ±20. The aggregation is that of the configuration.
"""

import jax
import jax.numpy as jnp

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, token_ratios


def cispo(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the token losses of CISPO. `clipped_high` marks the tokens whose weight the bound limits."""
    ratios, bound = token_ratios(batch), 1.0 + settings.epsilon_high
    too_large = ratios > bound
    weights = jax.lax.stop_gradient(jnp.where(too_large, bound, ratios))
    losses = -weights * batch.advantages_of_tokens * batch.logps
    return TokenLosses(losses, ratios, jnp.zeros_like(too_large), too_large)
