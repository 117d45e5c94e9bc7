"""Attention against NumPy: heads that share keys, masks, bounds, prefixes; and JAX's own function in its place."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.policy.network.attention import attend, attend_after, fused, uses_cudnn

RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


def attend_oracle(q: Any, k: Any, v: Any, mask: Any, softcap: float | None) -> np.ndarray:
    """A loop over rows, tokens and heads, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    B, T, Q, _ = q.shape
    out = np.zeros(q.shape)
    for b, t, h in np.ndindex(B, T, Q):
        head = h // (Q // k.shape[1])
        logits = k[b, head] @ q[b, t, h]
        if softcap is not None:
            logits = softcap * np.tanh(logits / softcap)
        shares = np.where(np.asarray(mask)[b, t], np.exp(logits - logits.max()), 0.0)
        out[b, t, h] = shares @ v[b, head] / shares.sum()
    return out


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "softcap"), [(4, 4, None), (6, 2, 2.0), (4, 1, None)])
def test_attention_is_that_of_numpy(num_heads: int, num_kv_heads: int, softcap: float | None) -> None:
    q, k, v = normal(2, 3, num_heads, 4), normal(2, num_kv_heads, 5, 4), normal(2, num_kv_heads, 5, 4)
    mask = np.asarray(RNG.random((2, 3, 5)) < 0.6)
    mask[..., 0] = True
    found = attend(q, k, v, jnp.asarray(mask), softcap)
    np.testing.assert_allclose(found, attend_oracle(q, k, v, mask, softcap), atol=1e-5)


@pytest.mark.parametrize(("num_tokens", "softcap"), [pytest.param(1, None, marks=pytest.mark.slow), (3, 2.0)])
def test_attention_after_a_prefix_is_that_to_both_in_a_row(num_tokens: int, softcap: float | None) -> None:
    B, R, T, P, K, Q, H = 2, 3, num_tokens, 5, 2, 6, 4
    q, k, v = normal(B * R, T, Q, H), normal(B * R, K, T, H), normal(B * R, K, T, H)
    prefix_k, prefix_v = normal(B, K, P, H), normal(B, K, P, H)
    mask = np.broadcast_to(np.tril(np.ones((T, T), bool)), (B * R, T, T))
    prefix_mask = np.asarray(RNG.random((B, R, T, P)) < 0.6)
    found = attend_after(q, k, v, jnp.asarray(mask), (prefix_k, prefix_v, jnp.asarray(prefix_mask)), softcap)
    whole_k, whole_v = (
        np.concatenate([np.repeat(before, R, axis=0), own], axis=2) for before, own in ((prefix_k, k), (prefix_v, v))
    )
    whole_mask = np.concatenate([prefix_mask.reshape(B * R, T, P), mask], axis=2)
    np.testing.assert_allclose(found, attend_oracle(q, whole_k, whole_v, whole_mask, softcap), atol=1e-5)


def test_attention_logits_are_bounded_before_the_mask() -> None:
    """Equal values but for one: what the softmax gives it is the bounded logit's share."""
    q, k = jnp.full((1, 1, 1, 2), 100.0), jnp.array([[[[1.0, 1.0], [-1.0, -1.0], [1.0, 1.0]]]])
    v = jnp.array([[[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]])
    mask = jnp.array([[[True, True, False]]])
    out = np.asarray(attend(q, k, v, mask, 2.0))[0, 0, 0]
    np.testing.assert_allclose(out, [math.exp(2) / (math.exp(2) + math.exp(-2)), 0.0], rtol=1e-5)


def test_a_row_that_may_see_nothing_is_finite() -> None:
    x = jnp.ones((1, 2, 2, 2))
    assert np.isfinite(attend(x, x, x, jnp.zeros((1, 2, 2), jnp.bool_), None)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(4, 4), (6, 2)])
def test_jaxs_own_attention_takes_the_same_arguments_for_the_same_result(num_heads: int, num_kv_heads: int) -> None:
    q, k, v = normal(2, 4, num_heads, 8), normal(2, num_kv_heads, 6, 8), normal(2, num_kv_heads, 6, 8)
    mask = np.asarray(RNG.random((2, 4, 6)) < 0.6)
    mask[..., 0] = True
    expected = attend(q, k, v, jnp.asarray(mask), None)
    np.testing.assert_allclose(fused(q, k, v, jnp.asarray(mask), "xla"), expected, atol=1e-5)


ALLOWED: dict[str, Any] = {
    "dtype": jnp.dtype("bfloat16"),
    "num_queries": 64,
    "num_keys": 64,
    "head_dim": 128,
    "softcap": None,
    "capability": 8.0,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"dtype": jnp.dtype("float16")}, True),
        ({"head_dim": 8, "capability": 9.0}, True),
        ({"dtype": jnp.dtype("float32")}, False),
        ({"head_dim": 136}, False),
        ({"head_dim": 20}, False),
        ({"softcap": 50.0}, False),
        ({"num_queries": 1}, False),
        ({"num_keys": 63}, False),
        ({"capability": 7.5}, False),
        ({"capability": None}, False),
    ],
)
def test_cudnn_is_used_where_it_has_a_kernel(change: dict[str, Any], expected: bool) -> None:
    assert uses_cudnn(**{**ALLOWED, **change}) is expected
