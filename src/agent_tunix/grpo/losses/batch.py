"""The inputs and results that all losses share."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# A Python number, or an array of one number.
Number = float | Float[Array, ""]

# Log-ratios are limited to ± this value. exp(20) is 5e8, far beyond any clip, and still finite in float32.
LARGEST_LOG_RATIO = 20.0


class LossBatch(NamedTuple):
    """B completions of T token slots; a JAX pytree.

    Attributes:
        logps: Log-probabilities under the policy that trains, at the sampling temperature. The loss is differentiated
            with respect to them.
        old_logps: Log-probabilities under the policy that sampled; None if that is the policy that trains, so that
            every ratio is 1.
        reference_logps: Log-probabilities under the reference policy; None without a KL penalty.
        advantages: One for each completion, or one for each token where turns have their own (`grpo.credit`).
        mask: True at tokens that take part. Values elsewhere have no effect.
        weights: `completion_weights`, the weight of each token of a completion in the loss.
        entropies: Entropy of the next token, in nats; differentiated if its bonus is in the loss. None if unknown.
        sampled_logps: Log-probabilities that the sampler's program computed; None if unknown.
        teacher_logps: Log-probabilities under the teacher; None without one. They are those of the tokens, or [B, T, k]
            those of `top_logps`.
        top_logps: Log-probabilities under the policy that trains, of the teacher's k likeliest words at each place;
            differentiated. None if the teacher judges the sampled tokens alone.
        taught: True at completions that the teacher judges; None if it judges all.
        observation_weights: Weights of the tokens that tools and environments wrote, in the term `observation_nll`; 0
            elsewhere. None without that term. `logps` must hold their log-probabilities too.
    """

    logps: Float[Array, "B T"]
    old_logps: Float[Array, "B T"] | None
    reference_logps: Float[Array, "B T"] | None
    advantages: Float[Array, " B"] | Float[Array, "B T"]
    mask: Bool[Array, "B T"]
    weights: Float[Array, " B"]
    entropies: Float[Array, "B T"] | None = None
    sampled_logps: Float[Array, "B T"] | None = None
    teacher_logps: Float[Array, "B T"] | Float[Array, "B T k"] | None = None
    top_logps: Float[Array, "B T k"] | None = None
    observation_weights: Float[Array, "B T"] | None = None
    taught: Bool[Array, " B"] | None = None

    @property
    def advantages_of_tokens(self) -> Float[Array, "B 1"] | Float[Array, "B T"]:
        """The advantages, which broadcast over tokens."""
        return self.advantages[:, None] if self.advantages.ndim == 1 else self.advantages


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ObjectiveSettings:
    """Settings of the objective; a JAX pytree.

    The numbers may be arrays that a compiled program takes as inputs, so that one program serves all their values. The
    names, and which of the optional numbers are None, are part of the program.

    Attributes:
        loss: A key of `LOSSES`, or a name or path of a user's own loss.
        epsilon: Lower clip. A loss ignores the settings that its equation lacks.
        epsilon_high: Upper clip.
        epsilon_c: Dual clip for negative advantages; None for no dual clip.
        beta: β, the coefficient of the KL penalty.
        teacher_coefficient: Coefficient of the divergence from the teacher.
        kl_estimator: A key of `KL_ESTIMATORS`.
        tau_positive: τ_pos of SAPO.
        tau_negative: τ_neg of SAPO.
        entropy_coefficient: Coefficient of the entropy bonus. `terms` explains this and the next three.
        top_entropy_share: Share of tokens whose policy loss counts.
        off_policy_threshold: Distance from the sampling policy, in nats a token, above which completions are masked.
        positive_nll: Coefficient of the likelihood of completions with a positive advantage.
        observation_nll: Coefficient of the likelihood of tokens that tools and environments wrote.
        sampler_correction: None, or a key of `TRUNCATIONS` or `BANDS` of `sampler_mismatch`.
        sampler_correction_cap: Upper bound of that correction's ratios.
        sampler_correction_floor: Lower bound of a band; None for none.
    """

    loss: str = field(default="grpo", metadata={"static": True})
    epsilon: Number = 0.2
    epsilon_high: Number = 0.2
    epsilon_c: Number | None = None
    beta: Number = 0.0
    kl_estimator: str = field(default="low_var_kl", metadata={"static": True})
    tau_positive: Number = 1.0
    tau_negative: Number = 1.05
    entropy_coefficient: Number | None = None
    top_entropy_share: Number | None = None
    off_policy_threshold: Number | None = None
    positive_nll: Number | None = None
    sampler_correction: str | None = field(default=None, metadata={"static": True})
    sampler_correction_cap: Number = 2.0
    sampler_correction_floor: Number | None = None
    teacher_coefficient: Number = 1.0
    observation_nll: Number | None = None


class TokenLosses(NamedTuple):
    """Per-token losses and statistics, before aggregation.

    Attributes:
        losses: Loss of each token.
        ratios: Importance ratio of each token.
        clipped_low: True if the lower bound removed the gradient: the ratio is too small and the advantage negative.
        clipped_high: True if an upper bound removed the gradient, or limited the weight: the ratio is too large.
    """

    losses: Float[Array, "B T"]
    ratios: Float[Array, "B T"]
    clipped_low: Bool[Array, "B T"]
    clipped_high: Bool[Array, "B T"]


def clean(batch: LossBatch) -> LossBatch:
    """Return the batch in float32, with masked log-probabilities set to 0 so that a NaN there cannot reach a sum.

    Float64 stays float64.
    """

    def keep(logps: Float[Array, "B T ..."] | None) -> Float[Array, "B T ..."] | None:
        if logps is None:
            return None
        return jnp.where(mask if logps.ndim == 2 else mask[..., None], _widened(logps), 0.0)

    mask = batch.mask.astype(jnp.bool_)
    logps = jnp.where(mask, _widened(batch.logps), 0.0)
    return LossBatch(
        logps=logps,
        old_logps=keep(batch.old_logps),
        reference_logps=keep(batch.reference_logps),
        advantages=_widened(batch.advantages),
        mask=mask,
        weights=_widened(batch.weights),
        entropies=keep(batch.entropies),
        sampled_logps=keep(batch.sampled_logps),
        teacher_logps=keep(batch.teacher_logps),
        top_logps=keep(batch.top_logps),
        observation_weights=batch.observation_weights,
        taught=batch.taught,
    )


def _widened(array: Float[Array, "..."]) -> Float[Array, "..."]:
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def token_ratios(batch: LossBatch) -> Float[Array, "B T"]:
    """Return the importance ratio of each token, with the log-ratio limited to ±20."""
    return jnp.exp(jnp.clip(log_ratios(batch), -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))


def unclipped(losses: Float[Array, "B T"], ratios: Float[Array, "B T"]) -> TokenLosses:
    """Return the losses of a method without a clip."""
    nowhere = jnp.zeros(losses.shape, jnp.bool_)
    return TokenLosses(losses, ratios, nowhere, nowhere)


def log_ratios(batch: LossBatch) -> Float[Array, "B T"]:
    """Return log π(token) − log π_old(token), which is exactly 0, but has a gradient, if the policy itself sampled."""
    old = jax.lax.stop_gradient(batch.logps) if batch.old_logps is None else batch.old_logps
    return batch.logps - old
