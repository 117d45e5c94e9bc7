"""Parts of the decoder against NumPy: attention, norms and rotary positions; and JAX's own attention in its place."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.tiers import slow_after

from agent_tunix.policy.architecture import DeltaNetSizes, Rope
from agent_tunix.policy.network import attention
from agent_tunix.policy.network.attention import attend, attend_after, fused, uses_cudnn
from agent_tunix.policy.network.deltanet import Convolution, delta_chunks, delta_step, invert_unit_lower
from agent_tunix.policy.network.norms import rms_norm
from agent_tunix.policy.network.rotation import frequencies, rotate, rotation
from agent_tunix.policy.network.row_kernel import RowKernel

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


@pytest.mark.parametrize(("num_tokens", "softcap"), slow_after(1, [(3, 2.0), (1, None)]))
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


@pytest.mark.parametrize(
    ("rope", "expected_ratio"),
    [
        (Rope(10_000.0), [1.0, 1.0, 1.0, 1.0]),
        (Rope(10_000.0, "linear", 8.0), [1 / 8] * 4),
        # Wavelengths are 6.3, 63, 628 and 6283 tokens: below 200/4 kept, above 200/1 stretched.
        (Rope(10_000.0, "llama3", 8.0, 1.0, 4.0, 200), [1.0, None, 1 / 8, 1 / 8]),
        # In 200 tokens the pairs turn 32, 3.2, .3 and .03 times: kept down to the second, stretched from the fourth.
        (Rope(10_000.0, "yarn", 8.0, 0.1, 3.0, 200), [1.0, 1.0, 9 / 16, 1 / 8]),
    ],
    ids=lambda value: value.kind if isinstance(value, Rope) else "",
)
def test_frequencies_are_stretched_as_their_kind_says(rope: Rope, expected_ratio: list[float | None]) -> None:
    found = np.asarray(frequencies(rope, 8), np.float64) / 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    between = 1 / 8 + 7 / 8 * (200 / (2 * math.pi * 10) - 1) / 3
    np.testing.assert_allclose(found, [between if ratio is None else ratio for ratio in expected_ratio], rtol=1e-6)


def test_yarn_lengthens_queries_and_keys() -> None:
    x = normal(1, 3, 2, 8)
    rope = Rope(10_000.0, "yarn", 8.0, 0.1, 3.0, 200, magnitude=1.2)
    turned = rotate(x, rotation(rope, 8, jnp.arange(3)[None]))
    np.testing.assert_allclose(jnp.linalg.norm(turned, axis=-1), 1.2 * jnp.linalg.norm(x, axis=-1), rtol=1e-5)


def test_frequencies_are_right_to_the_last_bit_of_float32() -> None:
    """An error is multiplied by the position, up to 131,072 of them."""
    exact = 500_000.0 ** (-np.arange(0, 128, 2) / 128)
    np.testing.assert_array_equal(np.asarray(frequencies(Rope(500_000.0), 128)), exact.astype(np.float32))


@pytest.mark.parametrize("shared_window", [False, True])
def test_rows_attended_to_in_parts_are_those_of_all_at_once(
    shared_window: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    B, R, P, T, Q, K, H = 2, 6, 3, 7, 4, 2, 8
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(B, P + R * T, heads, H)), jnp.float32) for heads in (Q, K, K))
    causal = jnp.tril(jnp.ones((T, T), bool)) & (jnp.arange(T)[:, None] - jnp.arange(T) < 5)
    masks = rng.random((B, R, T, P)) < 0.7 if shared_window else rng.random((B, 1, 1, P)) < 0.7
    groups = attention.Groups(jnp.ones((B, P, P), bool), jnp.broadcast_to(causal, (B * R, T, T)), jnp.asarray(masks))

    def attend(*inputs: Any) -> jax.Array:
        q, k, v = inputs
        return attention.attend_in_groups(q, k, v, groups, RowKernel(5.0, None, None))

    def compute() -> Any:
        gradients = jax.grad(lambda *inputs: (attend(*inputs) * jnp.arange(H)).sum(), argnums=(0, 1, 2))
        return jax.jit(lambda *inputs: (attend(*inputs), *gradients(*inputs)))(q, k, v)

    expected = compute()
    monkeypatch.setattr(attention, "_CACHED_LOGITS", 3 * Q * T * T)
    monkeypatch.setattr(attention, "_SMALLEST_BLOCK", 3)
    for found, wanted in zip(compute(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# Gated DeltaNet.


def delta_inputs(num_tokens: int) -> tuple[jax.Array, ...]:
    """Queries, keys of length 1, values, log α, β and the state before, of two rows and three heads."""
    q, k, v = normal(2, 3, num_tokens, 4), normal(2, 3, num_tokens, 4), normal(2, 3, num_tokens, 5)
    k = k / jnp.linalg.norm(k, axis=-1, keepdims=True)
    log_decay, rate = -jnp.exp(normal(2, 3, num_tokens) - 2), jax.nn.sigmoid(normal(2, 3, num_tokens))
    return q, k, v, log_decay, rate, normal(2, 3, 4, 5)


@pytest.mark.parametrize("num_tokens", [2, 64, 150])
def test_chunks_of_a_state_are_single_steps_in_a_row(num_tokens: int) -> None:
    *inputs, memory = delta_inputs(num_tokens)
    found, last = jax.jit(delta_chunks)(*inputs, memory)

    def step(memory: jax.Array, token: Any) -> tuple[jax.Array, jax.Array]:
        q, k, v, log_decay, rate = (x[:, :, None] for x in token)
        out, memory = delta_step(q, k, v, log_decay, rate, memory)
        return memory, out[:, :, 0]

    expected_last, expected = jax.lax.scan(step, memory, tuple(jnp.moveaxis(x, 2, 0) for x in inputs))
    np.testing.assert_allclose(found, jnp.moveaxis(expected, 0, 2), atol=1e-5)
    np.testing.assert_allclose(last, expected_last, atol=1e-5)


def test_a_state_carried_between_calls_is_that_of_one_call() -> None:
    q, k, v, log_decay, rate, memory = delta_inputs(100)
    expected, last = delta_chunks(q, k, v, log_decay, rate, memory)
    outputs = []
    for part in (slice(0, 70), slice(70, 100)):
        q_part, k_part, v_part, *rates = (x[:, :, part] for x in (q, k, v, log_decay, rate))
        out, memory = delta_chunks(q_part, k_part, v_part, rates[0], rates[1], memory)
        outputs.append(out)
    np.testing.assert_allclose(jnp.concatenate(outputs, axis=2), expected, atol=1e-5)
    np.testing.assert_allclose(memory, last, atol=1e-5)


def test_the_inverse_of_a_triangular_matrix_and_its_gradient_are_those_of_numpy() -> None:
    matrix, weights = normal(2, 11, 11), normal(2, 11, 11)
    found, pull = jax.vjp(invert_unit_lower, matrix)
    expected = np.linalg.inv(np.tril(np.asarray(matrix, np.float64), -1) + np.eye(11))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    gradient = -np.tril(np.einsum("bji,bjk,blk->bil", expected, np.asarray(weights), expected), -1)
    np.testing.assert_allclose(pull(weights)[0], gradient, rtol=1e-3, atol=1e-3 * np.abs(gradient).max())


def test_keys_that_are_all_the_same_lose_no_precision() -> None:
    """A product of powers of the triangular matrix, which an inverse could be, would lose all of it here."""
    _, k, v, log_decay, rate, memory = delta_inputs(64)
    k, rate, log_decay = jnp.broadcast_to(k[:, :, :1], k.shape), jnp.ones_like(rate), jnp.zeros_like(log_decay)
    out, _ = delta_chunks(k, k, v, log_decay, rate, memory)
    np.testing.assert_allclose(out, v, atol=1e-4)


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1), (0,), ()], ids=len)
def test_a_convolution_remembers_its_last_inputs_and_no_padding(kept: tuple[int, ...]) -> None:
    sizes = DeltaNetSizes(1, 1, 2, 1, 3)
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        convolution = Convolution(sizes, jnp.dtype("float32"), nnx.Rngs(0))
    x, recent = normal(1, 3, 5), normal(1, 2, 5)
    filled = jnp.array([[slot in kept for slot in range(3)]])
    out, last = convolution(x, filled, recent)
    whole = jnp.concatenate([recent, x[:, : len(kept)]], axis=1)
    np.testing.assert_array_equal(last, whole[:, -2:])
    weight = convolution.weight[...][:, 0]
    expected = [jax.nn.silu((whole[0, t : t + 3] * weight.T).sum(0)) for t in range(len(kept))]
    np.testing.assert_allclose(out[0, : len(kept)], np.array(expected).reshape(-1, 5), atol=1e-6)


def test_chunks_call_no_lapack_which_would_block_two_cores() -> None:
    *inputs, memory = delta_inputs(64)
    program = jax.jit(jax.grad(lambda *arrays: delta_chunks(*arrays)[0].sum())).lower(*inputs, memory).as_text()
    assert "custom_call" not in program
