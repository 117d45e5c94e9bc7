"""The clipped surrogate of PPO (https://arxiv.org/abs/1707.06347, equation 7), shared by GRPO and GSPO.

With importance ratio r and advantage A, the gain of a token is

    min(r A, clip(r, 1 − ε, 1 + ε_high) A)

and its loss is the negative gain. ε_high above ε is DAPO's clip-higher (https://arxiv.org/abs/2503.14476, equation 10).
With dual clipping (https://arxiv.org/abs/1912.09729) the gain for A < 0 is at least c A, with c > 1 + ε_high.

The code distinguishes cases instead of using `min`. If no bound acts, both arguments of `min` are equal, and JAX would
give each of them half of the gradient.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses


def clipped_surrogate(ratios: Float[Array, "B T"], batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Compute the loss of each token, and mark where clipping removed the gradient.

    Args:
        ratios: r, at least 0.
        batch: The completions, with their advantages A.
        settings: ε: with A < 0, r below 1 − ε gains nothing more. ε_high: with A > 0, r above 1 + ε_high gains nothing
            more. c of dual clipping, or None.
    """
    advantages, epsilon_c = batch.advantages_of_tokens, settings.epsilon_c
    low, high = 1.0 - settings.epsilon, 1.0 + settings.epsilon_high
    clipped_low = (advantages < 0) & (ratios < low)
    clipped_high = (advantages > 0) & (ratios > high)
    bounds = jnp.where(clipped_low, low, high)
    if epsilon_c is not None:
        too_great = (advantages < 0) & (ratios > epsilon_c)
        clipped_high |= too_great
        bounds = jnp.where(too_great, epsilon_c, bounds)
    losses = -jnp.where(clipped_low | clipped_high, bounds, ratios) * advantages
    return TokenLosses(losses, ratios, clipped_low, clipped_high)
