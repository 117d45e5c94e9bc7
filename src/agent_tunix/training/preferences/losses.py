"""Losses of preference tuning: DPO, SimPO and IPO.

With y_c the chosen and y_r the rejected response to a prompt x, and σ the logistic function:

| loss | score s(y) | loss of a pair, with Δ = s(y_c) − s(y_r) | source |
| --- | --- | --- | --- |
| dpo | log π(y|x) − log π_ref(y|x) | −log σ(β Δ) | https://arxiv.org/abs/2305.18290, eq. 7 |
| simpo | log π(y|x) / |y| | −log σ(β Δ − γ) | https://arxiv.org/abs/2405.14734, eq. 6 |
| ipo | (log π(y|x) − log π_ref(y|x)) / |y| | (Δ − 1 / (2 β))² | https://arxiv.org/abs/2310.12036, eq. 17 |

Label smoothing ε makes −log σ(z) into −(1 − ε) log σ(z) − ε log σ(−z), the conservative DPO of
https://ericmitchell.ai/cdpo.pdf. Without a reference policy, log π_ref is 0.

A departure: the IPO paper sums the score over the tokens. Here it is their mean, because the squared loss would
otherwise depend on the lengths of the responses. TRL does the same.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agent_tunix.config.preferences import PreferenceSettings


def score_responses(
    settings: PreferenceSettings,
    logps_nT: Float[Array, "n T"],
    reference_nT: Float[Array, "n T"] | None,
    mask_nT: Bool[Array, "n T"],
) -> Float[Array, " n"]:
    """Return the score s(y) of each response; 0 for one without tokens.

    Args:
        settings: Loss and its parameters.
        logps_nT: Log-probabilities of the tokens under the policy.
        reference_nT: The same under the reference policy; None without one.
        mask_nT: Tokens of the responses.
    """
    if reference_nT is not None:
        logps_nT = logps_nT - reference_nT
    score_n = jnp.where(mask_nT, logps_nT, 0.0).sum(axis=-1)
    return score_n if settings.loss == "dpo" else score_n / jnp.maximum(mask_nT.sum(axis=-1), 1)


def pair_losses(settings: PreferenceSettings, difference_n: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return the loss of each pair from the difference Δ of its scores."""
    if settings.loss == "ipo":
        return (difference_n - 1.0 / (2.0 * settings.beta)) ** 2
    logit_n = settings.beta * difference_n - settings.gamma
    smoothing = settings.label_smoothing
    return -(1.0 - smoothing) * jax.nn.log_sigmoid(logit_n) - smoothing * jax.nn.log_sigmoid(-logit_n)
