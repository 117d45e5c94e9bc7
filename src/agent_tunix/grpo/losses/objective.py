"""The whole objective: the surrogate of a family, aggregated, plus β times the divergence from the reference policy."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.aggregation import aggregate
from agent_tunix.grpo.losses.batch import LossBatch, TokenLosses, clean
from agent_tunix.grpo.losses.grpo import grpo
from agent_tunix.grpo.losses.gspo import gspo, gspo_token
from agent_tunix.grpo.losses.kl import KL_ESTIMATORS
from agent_tunix.grpo.losses.reinforce import reinforce

_CLIPPED: dict[str, Callable[..., TokenLosses]] = {"grpo": grpo, "gspo": gspo, "gspo_token": gspo_token}
LOSSES = (*_CLIPPED, "reinforce")


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which objective; hashable, so that it can be a static argument.

    Attributes:
        loss: One of `LOSSES`.
        epsilon: Lower clip; not read by `reinforce`, nor are the other clips.
        epsilon_high: Upper clip.
        epsilon_c: Dual clip for negative advantages; None: without.
        beta: β.
        kl_estimator: A name of `KL_ESTIMATORS`.
    """

    loss: str = "grpo"
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    epsilon_c: float | None = None
    beta: float = 0.0
    kl_estimator: str = "low_var_kl"


def policy_objective(
    batch: LossBatch, settings: ObjectiveSettings
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """What is minimised, and what is to be known of it.

    Args:
        batch: Completions, or some of a batch whose weights were taken over all of it: losses of parts sum to the
            whole's.
        settings: Which objective.

    Returns:
        The loss, and statistics without gradient: `kl`, aggregated as the loss is, where there is a reference;
        `clip_share_low`, `clip_share_high` and `ratio_mean`, means over the tokens that take part, and `ratio_max`;
        0 where none does.
    """
    batch = clean(batch)
    tokens = _token_losses(batch, settings)
    loss = aggregate(tokens.losses, batch.mask, batch.weights)
    count = jnp.maximum(batch.mask.sum(), 1)

    def mean(values: Array) -> Float[Array, ""]:
        return jnp.where(batch.mask, values, 0.0).sum() / count

    statistics = {
        "clip_share_low": mean(tokens.clipped_low),
        "clip_share_high": mean(tokens.clipped_high),
        "ratio_mean": mean(tokens.ratios),
        "ratio_max": jnp.max(jnp.where(batch.mask, tokens.ratios, 0.0), initial=0.0),
    }
    if batch.reference_logps is not None:
        divergences = KL_ESTIMATORS[settings.kl_estimator](batch.logps, batch.reference_logps)
        statistics["kl"] = aggregate(divergences, batch.mask, batch.weights)
        loss = loss + settings.beta * statistics["kl"]
    return loss, jax.tree.map(jax.lax.stop_gradient, statistics)


def _token_losses(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    if settings.loss == "reinforce":
        return reinforce(batch)
    return _CLIPPED[settings.loss](
        batch, epsilon=settings.epsilon, epsilon_high=settings.epsilon_high, epsilon_c=settings.epsilon_c
    )
