"""What every loss reads, and what it gives back."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# A log-ratio beyond this is cut: exp(20) is 5e8, far past any clip, and the ratio stays finite in float32.
LARGEST_LOG_RATIO = 20.0


class LossBatch(NamedTuple):
    """B completions of T token slots; a JAX pytree.

    Attributes:
        logps: Log-probabilities under the policy that learns, at the sampling temperature; what is differentiated.
        old_logps: Under the policy that sampled; None where that is the policy itself, so that every ratio is 1.
        reference_logps: Under the reference policy; None without a KL penalty.
        advantages: One for each completion.
        mask: True at tokens that take part; what stands elsewhere is never read.
        weights: `completion_weights`: what each token of a completion counts for in the loss.
    """

    logps: Float[Array, "B T"]
    old_logps: Float[Array, "B T"] | None
    reference_logps: Float[Array, "B T"] | None
    advantages: Float[Array, " B"]
    mask: Bool[Array, "B T"]
    weights: Float[Array, " B"]


class TokenLosses(NamedTuple):
    """What a family makes of a batch, before anything is summed.

    Attributes:
        losses: Of each token.
        ratios: Importance ratio that each token was weighed with.
        clipped_low: Where the lower bound took the gradient away: a ratio too small, the advantage negative.
        clipped_high: Where an upper bound did: a ratio too great.
    """

    losses: Float[Array, "B T"]
    ratios: Float[Array, "B T"]
    clipped_low: Bool[Array, "B T"]
    clipped_high: Bool[Array, "B T"]


def clean(batch: LossBatch) -> LossBatch:
    """The batch in float32, with 0 for every log-probability that takes no part: a NaN there must not reach a sum."""

    def keep(logps: Float[Array, "B T"] | None) -> Float[Array, "B T"] | None:
        return None if logps is None else jnp.where(mask, logps.astype(jnp.float32), 0.0)

    mask = batch.mask.astype(jnp.bool_)
    logps = jnp.where(mask, batch.logps.astype(jnp.float32), 0.0)
    return LossBatch(
        logps=logps,
        old_logps=keep(batch.old_logps),
        reference_logps=keep(batch.reference_logps),
        advantages=batch.advantages.astype(jnp.float32),
        mask=mask,
        weights=batch.weights.astype(jnp.float32),
    )


def log_ratios(batch: LossBatch) -> Float[Array, "B T"]:
    """log π(token) − log π_old(token); exactly 0, with its gradient, where the policy itself sampled."""
    old = jax.lax.stop_gradient(batch.logps) if batch.old_logps is None else batch.old_logps
    return batch.logps - old
