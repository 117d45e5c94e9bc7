"""Log-probabilities by the kernel for TPUs: its steps, run on a CPU, against the plain form; and its program."""

import json
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from agent_tunix.grpo import head_kernel
from agent_tunix.grpo.head_kernel import HeadKernel, differentiable_statistics
from agent_tunix.policy.mesh import place_rows, row_axes
from tests.eight_devices import run_on_eight_devices
from tests.tiers import slow_after

TEMPERATURE = 0.7


def make_inputs(num_rows: int, length: int, num_words: int, width: int) -> tuple[Any, ...]:
    """Return hidden states and tokens of rows, a mask that leaves out the ends of rows, and a matrix."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(num_rows, length, width)).astype(np.float32)
    tokens = rng.integers(0, num_words, (num_rows, length))
    mask = np.arange(length) < rng.integers(1, length, num_rows)[:, None]
    return hidden, tokens, mask, rng.normal(size=(num_words, width), scale=0.3).astype(np.float32)


def plain(hidden: Any, tokens: Any, mask: Any, matrix: Any, softcap: float | None) -> tuple[jax.Array, jax.Array]:
    """Return log-probabilities and entropies from all logits at once; 0 outside the mask."""
    logits = hidden @ matrix.T
    logits = (logits if softcap is None else jnp.tanh(logits / softcap) * softcap) / TEMPERATURE
    logps = jax.nn.log_softmax(logits)
    entropies = -(jnp.exp(logps) * logps).sum(-1)
    chosen = jnp.take_along_axis(logps, tokens[..., None], axis=-1)[..., 0]
    return jnp.where(mask, chosen, 0), jnp.where(mask, entropies, 0)


def differences(inputs: tuple[Any, ...], softcap: float | None, mesh: jax.sharding.Mesh | None) -> list[float]:
    """Return the largest differences of log-probabilities, of entropies and of gradients from the plain form."""
    hidden, tokens, mask, matrix = inputs
    n, T, D = hidden.shape
    kernel = HeadKernel(mesh, TEMPERATURE, softcap, interpret=True)
    axes = () if mesh is None else row_axes(mesh, n)
    rows = hidden, tokens, mask
    rows = rows if mesh is None else place_rows(mesh, rows)

    def by_kernel(hidden: Any, tokens: Any, mask: Any) -> Any:
        flat = hidden.reshape(n * T, D), tokens.reshape(-1), mask.reshape(-1)
        found = differentiable_statistics(kernel, *flat, jnp.asarray(matrix), axes)
        return [x.reshape(n, T) for x in found]

    def all_at_once(hidden: Any, tokens: Any, mask: Any) -> Any:
        return plain(hidden, tokens, mask, matrix, softcap)

    def run(statistics: Any, *rows: Any) -> Any:
        def loss(hidden: Any) -> Any:
            found = statistics(hidden, *rows[1:])
            return (found[0] * jnp.sin(jnp.arange(n * T)).reshape(n, T)).sum(), found

        gradient, found = jax.grad(loss, has_aux=True)(rows[0])
        return [*found, gradient]

    found = jax.jit(lambda *rows: run(by_kernel, *rows))(*rows)
    expected = jax.jit(lambda *rows: run(all_at_once, *rows))(hidden, tokens, mask)
    return [float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(found, expected, strict=True)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_kernel, "_MOST_TOKENS", 128)


@pytest.mark.parametrize("softcap", slow_after(1, [5.0, None]))
def test_the_kernel_equals_the_plain_form_and_so_do_its_gradients(softcap: float | None) -> None:
    """Several blocks of tokens and of words, and a last block that is not full."""
    inputs = make_inputs(3, 65, 256, 32)
    assert max(differences(inputs, softcap, None)) < 2e-5


def test_blocks_without_a_token_of_the_mask_are_left_out() -> None:
    """Their hidden states would make their results, and those of their block, no numbers."""
    hidden, tokens, mask, matrix = (jnp.asarray(x) for x in make_inputs(1, 256, 128, 32))
    mask, hidden = jnp.arange(256) % 2 == 0, jnp.where((jnp.arange(256) % 2 == 0)[:, None], hidden[0], jnp.nan)
    kernel = HeadKernel(None, TEMPERATURE, None, interpret=True)
    run = jax.jit(lambda hidden: differentiable_statistics(kernel, hidden, tokens[0], mask, matrix, ()))
    for values in run(hidden):
        assert np.isfinite(values).all()
        assert not values[~mask].any()


def test_words_that_are_no_whole_lanes_have_no_kernel() -> None:
    kernel = HeadKernel(None, TEMPERATURE, None)
    assert kernel.supports(262_144, 100)
    assert not kernel.supports(53, 100)


@pytest.mark.slow
def test_the_kernel_on_a_mesh_equals_the_plain_form_and_policies_use_it_on_tpus(tmp_path: Any) -> None:
    answers = json.loads(run_on_eight_devices("tests.training.head_kernel_mesh", tmp_path))
    assert max(answers["differences"]) < 2e-5
    assert answers["kernels"] == {"tpu": 1, "cpu": 0}
    assert answers["copies"] < 1e-4
