"""Estimators of the divergence KL(π ‖ π_ref) from one token, for use as a term of the loss.

With d = log π_ref(token) − log π(token), in the names of http://joschu.net/blog/kl-approx.html:

    k2   mse_kl        d² / 2
    k3   low_var_kl    exp(d) − d − 1        equation 4 of https://arxiv.org/abs/2402.03300

The estimator k1 = −d is left out. Used as a loss, its gradient has expectation 0 over the policy's samples, so it
penalises nothing. The gradient of k2's expectation is that of KL(π ‖ π_ref); the gradient of k3's is that of KL(π_ref ‖
π).
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float


def k2(logps: Float[Array, "B T"], reference_logps: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """Return half the squared log-ratio; at least 0, biased."""
    return 0.5 * jnp.square(reference_logps - logps)


def k3(logps: Float[Array, "B T"], reference_logps: Float[Array, "B T"]) -> Float[Array, "B T"]:
    """Return exp(d) − d − 1; at least 0, unbiased, of low variance."""
    difference = reference_logps - logps
    return jnp.expm1(difference) - difference


KL_ESTIMATORS: dict[str, Callable[..., Float[Array, "B T"]]] = {"low_var_kl": k3, "mse_kl": k2}
