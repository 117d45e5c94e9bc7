"""The whole objective: the aggregated surrogate loss plus β times the KL divergence from the reference policy."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.aggregation import aggregate
from agent_tunix.grpo.losses.batch import LossBatch, Number, TokenLosses, clean
from agent_tunix.grpo.losses.grpo import grpo
from agent_tunix.grpo.losses.gspo import gspo, gspo_token
from agent_tunix.grpo.losses.kl import KL_ESTIMATORS
from agent_tunix.grpo.losses.reinforce import reinforce

_CLIPPED: dict[str, Callable[..., TokenLosses]] = {"grpo": grpo, "gspo": gspo, "gspo_token": gspo_token}
LOSSES = (*_CLIPPED, "reinforce")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ObjectiveSettings:
    """Settings of the objective; a JAX pytree.

    The numbers may be arrays that a compiled program takes as inputs, so that one program serves all their values. The
    names, and whether there is a dual clip, are part of the program.

    Attributes:
        loss: One of `LOSSES`.
        epsilon: Lower clip. `reinforce` ignores this and the other clips.
        epsilon_high: Upper clip.
        epsilon_c: Dual clip for negative advantages; None for no dual clip.
        beta: β, the coefficient of the KL penalty.
        kl_estimator: A key of `KL_ESTIMATORS`.
    """

    loss: str = field(default="grpo", metadata={"static": True})
    epsilon: Number = 0.2
    epsilon_high: Number = 0.2
    epsilon_c: Number | None = None
    beta: Number = 0.0
    kl_estimator: str = field(default="low_var_kl", metadata={"static": True})


def policy_objective(
    batch: LossBatch, settings: ObjectiveSettings
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Compute the loss to minimise, and statistics of it.

    Args:
        batch: Completions of a whole batch, or of a part whose weights were computed over the whole batch. The losses
            of the parts sum to that of the batch.
        settings: Settings of the objective.

    Returns:
        The loss, and statistics without gradient. `clip_share_low`, `clip_share_high` and `ratio_mean` are means over
        the tokens that take part, and `ratio_max` is their maximum; all are 0 if no token takes part. `kl` is there
        with a reference policy, and is aggregated like the loss.
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
