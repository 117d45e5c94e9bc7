"""Estimators of the divergence KL(π ‖ π_ref) from one token, for use as a term of the loss.

With d = log π_ref(token) − log π(token), in the names of http://joschu.net/blog/kl-approx.html:

    k2   mse_kl        d² / 2
    k3   low_var_kl    exp(d) − d − 1        equation 4 of https://arxiv.org/abs/2402.03300
    r k3 unbiased_kl   r (exp(d) − d − 1)    section 3.1 of https://arxiv.org/abs/2512.02556 (DeepSeek-V3.2)

The estimator k1 = −d is left out. Used as a loss, its gradient has expectation 0 over the policy's samples, so it
penalises nothing. The expected gradient of k2 is that of KL(π ‖ π_ref). The expected gradient of k3 is that of
KL(π_ref ‖ π). With the importance ratio r = π / π_old, the expectation of r k3 over samples of π_old is KL(π ‖ π_ref)
for every π. Its gradient is that of KL(π ‖ π_ref), in the first update and in those that follow.

Departure: log-ratios of r are limited to ±20.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LossBatch, token_ratios


def k2(batch: LossBatch) -> Float[Array, "B T"]:
    """Return half the squared log-ratio; at least 0, biased."""
    return 0.5 * jnp.square(_log_ratios_to_reference(batch))


def k3(batch: LossBatch) -> Float[Array, "B T"]:
    """Return exp(d) − d − 1, with the log-ratio d; at least 0, unbiased, of low variance."""
    difference = _log_ratios_to_reference(batch)
    return jnp.expm1(difference) - difference


def weighted_k3(batch: LossBatch) -> Float[Array, "B T"]:
    """Return r (exp(d) − d − 1); its gradient is unbiased too, also after several updates."""
    return token_ratios(batch) * k3(batch)


def _log_ratios_to_reference(batch: LossBatch) -> Float[Array, "B T"]:
    assert batch.reference_logps is not None
    return batch.reference_logps - batch.logps


KL_ESTIMATORS: dict[str, Callable[[LossBatch], Float[Array, "B T"]]] = {
    "low_var_kl": k3,
    "mse_kl": k2,
    "unbiased_kl": weighted_k3,
}
