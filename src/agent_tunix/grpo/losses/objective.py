"""The whole objective: the aggregated policy loss, the divergences from reference and teacher, and `terms`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.errors import ConfigError
from agent_tunix.grpo.losses.aggregation import aggregate
from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, clean, token_ratios, unclipped
from agent_tunix.grpo.losses.cispo import cispo
from agent_tunix.grpo.losses.distillation import teacher_divergence
from agent_tunix.grpo.losses.dppo import dppo_kl, dppo_tv
from agent_tunix.grpo.losses.gmpo import gmpo
from agent_tunix.grpo.losses.grpo import grpo
from agent_tunix.grpo.losses.gspo import gspo, gspo_token
from agent_tunix.grpo.losses.kl import KL_ESTIMATORS
from agent_tunix.grpo.losses.reinforce import reinforce
from agent_tunix.grpo.losses.sampler_mismatch import correct, mismatch_kl
from agent_tunix.grpo.losses.sapo import sapo
from agent_tunix.grpo.losses.terms import MASKS, TERMS, observation_nll
from agent_tunix.own_functions import OWN_LOSSES
from agent_tunix.rewards.faults import describe_fault

LOSSES: dict[str, Callable[[LossBatch, ObjectiveSettings], TokenLosses]] = {
    "grpo": grpo,
    "gspo": gspo,
    "gspo_token": gspo_token,
    "cispo": cispo,
    "sapo": sapo,
    "gmpo": gmpo,
    "dppo_tv": dppo_tv,
    "dppo_kl": dppo_kl,
    "reinforce": reinforce,
    "none": lambda batch, settings: unclipped(jnp.zeros_like(batch.logps), token_ratios(batch)),
}


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
        the tokens that take part, and `ratio_max` is a maximum; all are 0 if no token takes part. `kl` is included with
        a reference policy, and `teacher_kl` with a teacher; both are aggregated like the loss. `teacher_weight` is the
        sum of the weights of the tokens that were taught, if not all are. `sampler_mismatch_kl`
        is included if the sampler's log-probabilities are known. `masked_share`, the share of tokens whose policy loss
        a mask of `terms` removed, `sampler_masked_share`, the same for a band of `sampler_mismatch`, and
        `entropy_coefficient` are included if the settings use them. With `observation_nll` there are the sum of that
        term and the sum of its weights, `observation_weight`.
    """
    uncleaned, batch = batch, clean(batch)
    tokens = _token_losses(batch, settings)
    losses, counted, masked = tokens.losses, batch.mask, None
    if settings.sampler_correction is not None:
        factors, masked = correct(batch, settings)
        losses = losses * factors
    masks = {name: value for name in MASKS if (value := getattr(settings, name)) is not None}
    for name, value in masks.items():
        counted &= MASKS[name](batch, value)
        losses = jnp.where(counted, losses, 0.0)
    loss = aggregate(losses, batch.mask, batch.weights)
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
        divergences = KL_ESTIMATORS[settings.kl_estimator](batch)
        statistics["kl"] = aggregate(divergences, batch.mask, batch.weights)
        loss = loss + settings.beta * statistics["kl"]
    if batch.teacher_logps is not None:
        statistics["teacher_kl"] = aggregate(teacher_divergence(batch), batch.mask, batch.weights)
        loss = loss + settings.teacher_coefficient * statistics["teacher_kl"]
        if batch.taught is not None:
            taught = jnp.broadcast_to(batch.taught[:, None], batch.mask.shape)
            statistics["teacher_weight"] = aggregate(taught.astype(loss.dtype), batch.mask, batch.weights)
    if batch.sampled_logps is not None:
        statistics["sampler_mismatch_kl"] = mean(mismatch_kl(batch))
    if masks:
        statistics["masked_share"] = mean(~counted)
    if masked is not None:
        statistics["sampler_masked_share"] = mean(masked)
    for name, term in TERMS.items():
        if (coefficient := getattr(settings, name)) is not None:
            loss = loss + coefficient * aggregate(term(batch), batch.mask, batch.weights)
    if settings.observation_nll is not None:
        statistics["observation_nll"], statistics["observation_weight"] = observation_nll(uncleaned)
        loss = loss + settings.observation_nll * statistics["observation_nll"]
    if settings.entropy_coefficient is not None:
        statistics["entropy_coefficient"] = jnp.asarray(settings.entropy_coefficient)
    return loss, jax.tree.map(jax.lax.stop_gradient, statistics)


def trains_without_advantages(settings: ObjectiveSettings, has_teacher: bool) -> bool:
    """Return True if a part of the objective other than the KL penalty has a gradient when all advantages are 0.

    A user's own loss may have one.
    """
    follows_teacher = has_teacher and settings.teacher_coefficient != 0
    has_term = settings.entropy_coefficient or settings.observation_nll
    return bool(follows_teacher or has_term or settings.loss not in LOSSES)


def _token_losses(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    if settings.loss in LOSSES:
        return LOSSES[settings.loss](batch, settings)
    own = OWN_LOSSES.get(settings.loss)
    try:
        losses = own(batch, settings)
    except Exception as error:
        file = getattr(getattr(own, "__code__", None), "co_filename", None)
        raise ConfigError(
            f"grpo.loss={settings.loss} failed: {describe_fault(error, file)}; JAX compiles it: use jax.numpy",
            code="invalid_function",
        ) from error
    if isinstance(losses, TokenLosses):
        return losses
    shape = getattr(losses, "shape", None)
    if shape != batch.logps.shape:
        raise ConfigError(
            f"grpo.loss={settings.loss} must return a loss for each token, an array of the shape {batch.logps.shape}, "
            f"but returned {type(losses).__name__} of the shape {shape}; do not sum or average in the function",
            code="invalid_function",
        )
    return unclipped(losses, token_ratios(batch))
