"""Disagreement of the program that sampled with the program that trains, and its corrections.

Both compute log π(o_it), but in other batches, layouts and precisions, and an engine may sample with older weights.
With μ the sampler's probabilities and π the trainer's before the update, the divergence is estimated by

    KL(μ ‖ π) ≈ mean_it (exp(d_it) − d_it − 1),   d_it = log π(o_it) − log μ(o_it)

which is k3 of http://joschu.net/blog/kl-approx.html. A correction multiplies the policy loss, without gradient, by

    token            min(ρ, C),              ρ = exp(d_it)
    sequence         min(ρ, C),              ρ = exp(Σ_s d_is)
    icepop           ρ [a ≤ ρ ≤ C],          ρ = exp(d_it)
    sequence_mask    ρ [a ≤ ρ ≤ C],          ρ = exp(Σ_s d_is)
    geometric_mask   [a ≤ ρ ≤ C],            ρ = exp(Σ_s d_is / |o_i|)

in which [·] is 1 if the condition holds and 0 otherwise. The first two truncate importance weights
(https://fengyao.notion.site/off-policy-rl, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training";
the bound is that of V-trace, https://arxiv.org/abs/1802.01561). The others mask what lies outside a band: `icepop`
single tokens (Ring-1T, https://arxiv.org/abs/2510.18855; INTELLECT-3, https://arxiv.org/abs/2512.16144, equation 1),
`sequence_mask` and `geometric_mask` whole completions (Seq-MIS and Geo-Mask of https://richardli.xyz/rl-collapse,
part 3). The geometric mean does not grow with the length, as the product of the ratios does. The default bounds are
those of other libraries: of rLLM for `icepop`, of TRL for `sequence_mask`, and of verl for the rest.

With several updates on a batch, the importance ratios of the loss are relative to μ already. A mask then only masks:
its factor is [a ≤ ρ ≤ C] with π the policy at the time of the update, as in INTELLECT-3. Truncation is undefined there.

Departures: d_it, its sum and its mean are limited to ±20. If an episode of an agent is several rows of tokens, each row
has a ratio of its own. The weights of the aggregation count masked tokens, as with the masks of `terms`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agent_tunix.grpo.losses.batch import LARGEST_LOG_RATIO, LossBatch, ObjectiveSettings


def mismatch_kl(batch: LossBatch) -> Float[Array, "B T"]:
    """Return exp(d) − d − 1 of each token."""
    differences = token_differences(batch)
    return jnp.expm1(differences) - differences


def token_differences(batch: LossBatch) -> Float[Array, "B T"]:
    """Return d of each token, without gradient."""
    assert batch.sampled_logps is not None
    return _limited(jax.lax.stop_gradient(batch.logps) - batch.sampled_logps)


def summed_differences(batch: LossBatch) -> Float[Array, "B 1"]:
    """Return the sum of d over each completion."""
    return _limited(jnp.where(batch.mask, token_differences(batch), 0.0).sum(axis=1, keepdims=True))


def mean_differences(batch: LossBatch) -> Float[Array, "B 1"]:
    """Return the mean of d over each completion; 0 for one without a token that takes part."""
    sums = jnp.where(batch.mask, token_differences(batch), 0.0).sum(axis=1, keepdims=True)
    return _limited(sums / jnp.maximum(batch.mask.sum(axis=1, keepdims=True), 1))


# The logarithms of the ratios of tokens or completions.
TRUNCATIONS: dict[str, Callable[[LossBatch], Float[Array, "B _"]]] = {
    "token": token_differences,
    "sequence": summed_differences,
}
BANDS: dict[str, Callable[[LossBatch], Float[Array, "B _"]]] = {
    "icepop": token_differences,
    "sequence_mask": summed_differences,
    "geometric_mask": mean_differences,
}


def correct(batch: LossBatch, settings: ObjectiveSettings) -> tuple[Float[Array, "B _"], Bool[Array, "B _"] | None]:
    """Return the factors of the policy loss, of tokens or completions, and where they mask it; None if they truncate.

    Args:
        batch: The completions, with the sampler's log-probabilities.
        settings: `sampler_correction`, and its bounds.
    """
    name, cap, floor = settings.sampler_correction, settings.sampler_correction_cap, settings.sampler_correction_floor
    if name in TRUNCATIONS:
        return jnp.minimum(jnp.exp(TRUNCATIONS[name](batch)), cap), None
    assert name is not None
    ratios = jnp.exp(BANDS[name](batch))
    masked = ratios > cap
    if floor is not None:
        masked |= ratios < floor
    only_masks = name == "geometric_mask" or batch.old_logps is not None
    return jnp.where(masked, 0.0, 1.0 if only_masks else ratios), masked


def _limited(logs: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.clip(logs, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
