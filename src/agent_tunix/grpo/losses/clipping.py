"""The clipped surrogate of PPO (https://arxiv.org/abs/1707.06347, equation 7), which GRPO and GSPO share.

With importance ratio r and advantage A the gain of a token is

    min(r A, clip(r, 1 − ε, 1 + ε_high) A)

and its loss the negative of it. ε_high above ε is DAPO's clip-higher (https://arxiv.org/abs/2503.14476, equation 10).
With dual clipping (https://arxiv.org/abs/1912.09729) the gain for A < 0 is at least c A, c > 1 + ε_high.

It is written by cases rather than with `min`: where the bounds do not act, both arguments are equal, and JAX would give
each half of the gradient.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import TokenLosses


def clipped_surrogate(
    ratios: Float[Array, "B T"],
    advantages: Float[Array, "B 1"],
    *,
    epsilon: float,
    epsilon_high: float,
    epsilon_c: float | None = None,
) -> TokenLosses:
    """The loss of each token, and where the gradient was clipped away.

    Args:
        ratios: r, at least 0.
        advantages: A, of each completion.
        epsilon: ε: r below 1 − ε gains nothing more.
        epsilon_high: ε_high: r above 1 + ε_high gains nothing more.
        epsilon_c: c of dual clipping; None: without.
    """
    low, high = 1.0 - epsilon, 1.0 + epsilon_high
    clipped_low = (advantages < 0) & (ratios < low)
    clipped_high = (advantages > 0) & (ratios > high)
    bounds = jnp.where(clipped_low, low, high)
    if epsilon_c is not None:
        too_great = (advantages < 0) & (ratios > epsilon_c)
        clipped_high |= too_great
        bounds = jnp.where(too_great, epsilon_c, bounds)
    losses = -jnp.where(clipped_low | clipped_high, bounds, ratios) * advantages
    return TokenLosses(losses, ratios, clipped_low, clipped_high)
