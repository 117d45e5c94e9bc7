"""Splash attention of long rows: its steps, run on a CPU, against the plain form; and its program for a TPU."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from tests.eight_devices import run_on_eight_devices
from tests.tiers import slow_after

from agent_tunix.policy.network import row_kernel
from agent_tunix.policy.network.attention import RowMask, attend_after, attend_rows
from agent_tunix.policy.network.row_kernel import RowKernel

RNG = np.random.default_rng(0)


def make_inputs(R: int, P: int, T: int, Q: int, K: int, window: int | None) -> tuple[Any, ...]:
    """Queries, keys, values, mask and prefix of R rows for each of two texts of different lengths."""
    B, H = 2, 16
    N = B * R

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(RNG.normal(size=shape), jnp.float32)

    slots = np.arange(P + T)
    near = slots[P:, None] - slots < (window or P + T)
    own = jnp.broadcast_to(np.tril(near[:, P:]), (N, T, T))
    in_text = slots[:P] >= P - np.array([[P], [P // 3]])
    shared = in_text[:, None, None, :] if window is None else in_text[:, None, None, :] & near[:, :P]
    if window is not None:
        shared = np.broadcast_to(shared, (B, R, T, P))
    prefix = normal(B, K, P, H), normal(B, K, P, H), jnp.asarray(shared)
    return normal(N, T, Q, H), normal(N, K, T, H), normal(N, K, T, H), own, prefix


def differentiate(attend: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the attention's output, and the gradients of queries, keys and values of a weighted sum of it."""
    q, k, v, mask, (prefix_k, prefix_v, prefix_mask) = inputs

    def run(q: Any, k: Any, v: Any, prefix_k: Any, prefix_v: Any) -> tuple[jax.Array, jax.Array]:
        out = attend(q, k, v, mask, (prefix_k, prefix_v, prefix_mask))
        return (out * jnp.sin(jnp.arange(out.size).reshape(out.shape))).sum(), out

    return jax.jit(jax.grad(run, argnums=(0, 1, 2, 3, 4), has_aux=True))(q, k, v, prefix_k, prefix_v)


@pytest.mark.parametrize(
    ("R", "P", "T", "Q", "K", "softcap", "window"),
    slow_after(
        1,
        [
            (2, 20, 130, 2, 1, None, None),
            (2, 128, 256, 4, 2, None, None),
            (1, 140, 128, 2, 2, 5.0, None),
            (2, 100, 300, 2, 1, None, 70),
        ],
    ),
)
def test_the_kernel_equals_the_plain_form_and_so_do_its_gradients(
    R: int, P: int, T: int, Q: int, K: int, softcap: float | None, window: int | None
) -> None:
    inputs = make_inputs(R, P, T, Q, K, window)
    expected = differentiate(lambda q, k, v, mask, prefix: attend_after(q, k, v, mask, prefix, softcap), inputs)
    found = differentiate(RowKernel(softcap, window, None, interpret=True), inputs)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
def test_the_kernel_on_a_mesh_equals_one_device_and_gradients_lower_with_it(tmp_path: Path) -> None:
    answers = json.loads(run_on_eight_devices("tests.policy.row_kernel_mesh", tmp_path))
    assert answers["difference"] < 1e-4
    assert all(count > 0 for counts in answers["kernels"].values() for count in counts)


@pytest.mark.parametrize(
    ("platform", "T", "has_kernel"), [("tpu", 256, True), ("tpu", 255, False), ("cpu", 256, False)]
)
def test_long_rows_use_the_kernel_on_tpus_alone(platform: str, T: int, has_kernel: bool) -> None:
    assert row_kernel.FEWEST_TOKENS == 256

    def attend(q: Any, k: Any, v: Any, mask: Any, prefix: Any) -> jax.Array:
        return attend_rows(q, k, v, RowMask(mask), prefix, RowKernel(None, None, None))

    inputs = make_inputs(1, 16, T, 2, 1, None)
    text = jax.export.export(jax.jit(attend), platforms=[platform])(*inputs).mlir_module()
    assert ("tpu_custom_call" in text) == has_kernel
