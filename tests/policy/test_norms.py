"""Norms, whose gradient is written out."""

import jax
import jax.numpy as jnp
import numpy as np

from agent_tunix.policy.network.norms import rms_norm


def formula(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """The formula, of which JAX derives the gradient."""
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


def test_the_gradient_of_a_norm_is_that_of_its_formula() -> None:
    shape = (2, 3, 5)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, weights = (jnp.asarray(rng.normal(size=shape)) for _ in range(2))
        scale = jnp.asarray(rng.normal(size=shape[-1]))
        for number in range(2):
            found, told = (
                jax.grad(lambda *args, of=of: (of(*args, 0.1) * weights).sum(), number)(x, scale)
                for of in (rms_norm, formula)
            )
            assert found.shape == told.shape
            np.testing.assert_allclose(found, told, rtol=1e-12, atol=1e-14)


def test_a_norm_keeps_what_it_was_given_and_a_number_for_each_token() -> None:
    x, scale = jnp.ones((7, 16)), jnp.ones(16)
    _, backward = jax.vjp(lambda *args: rms_norm(*args, 1e-6), x, scale)
    kept = sorted(leaf.shape for leaf in jax.tree.leaves(backward))
    assert kept == [(7, 1), (7, 16), (16,)]
