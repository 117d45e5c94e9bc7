"""The norm of every family, and its gradient."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.network.attention import wide


class RMSNorm(nnx.Module):
    """Root-mean-square norm (https://arxiv.org/abs/1910.07467), computed in float32, Gemma's `1 + weight` included."""

    def __init__(
        self, size: int, config: Architecture, *, dtype: jnp.dtype, param_dtype: jnp.dtype, rngs: nnx.Rngs
    ) -> None:
        """Create a norm whose scale is 1.

        Args:
            size: Size of the normalised axis.
            config: The architecture.
            dtype: Type of the output.
            param_dtype: Type of the weight.
            rngs: Not used; all modules take it.
        """
        self.weight = nnx.Param(jnp.full((size,), 1.0 - config.norm_offset, param_dtype))
        self.eps, self.offset, self.dtype = config.norm_eps, config.norm_offset, dtype

    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        """Return x / sqrt(mean(x²) + eps) · (weight + offset)."""
        scale = self.weight[...].astype(wide(x.dtype)) + self.offset
        return rms_norm(x.astype(scale.dtype), scale, self.eps).astype(self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: Float[Array, "... D"], scale: Float[Array, " D"], eps: float) -> Float[Array, "... D"]:
    """Return x · r · scale with r = 1 / sqrt(mean(x²) + eps), all of one type.

    The gradient is written by hand, in terms of n = x · r, which is not kept. With t = dy · n, the gradient of the
    scale is Σ t over the tokens, and that of x is r · (dy · scale - n · mean(t · scale)). JAX's own gradient keeps
    twice as much, and on a CPU XLA writes out each scale for every token, because its reduction library requires that.
    """
    return _rms_norm(x, scale, eps)[0]


def _rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> tuple[jax.Array, Any]:
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + eps)
    return x * inverse * scale, (x, inverse, scale)


def _rms_norm_gradient(eps: float, kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, inverse, scale = kept
    normed = x * inverse
    products = gradient * normed
    mean = jnp.matmul(products, scale, precision=jax.lax.Precision.HIGHEST)[..., None] / x.shape[-1]
    return inverse * (gradient * scale - normed * mean), products.sum(axis=range(x.ndim - 1))


rms_norm.defvjp(_rms_norm, _rms_norm_gradient)
