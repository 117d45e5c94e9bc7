"""The decoder of every family against a forward pass in NumPy: whole texts, padding, windows, the cache, bfloat16."""

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.policy.padding import Padded, Side, pad
from tests.policy.reference_decoder import reference_logits
from tests.policy.support import FAMILY_CONFIGS, WINDOW, make_family

from agent_tunix.policy.architecture import Rope
from agent_tunix.policy.decoder import Decoder, frequencies, rms_norm
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder

# Three texts, one shorter than the window of Gemma's sliding layers and two longer.
LENGTHS = (13, WINDOW - 2, 9)
T = max(LENGTHS)
TOKENS = np.random.default_rng(1).integers(0, 32, (len(LENGTHS), T))
PAD = 31


@pytest.fixture(scope="module", params=FAMILY_CONFIGS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_family(tmp_path_factory.mktemp("family") / "model", request.param)


@functools.cache
def load(directory: Path, dtype: str = "float32") -> Decoder:
    kind = jnp.dtype(dtype)
    return load_decoder(directory, read_architecture(directory), make_mesh([1, 1]), kind, kind)


@functools.cache
def expected(directory: Path) -> list[np.ndarray]:
    return [reference_logits(directory, TOKENS[row, :length]) for row, length in enumerate(LENGTHS)]


@nnx.jit
def call(model: Any, *arguments: Any) -> Any:
    return model(*arguments)


def run(model: Decoder, tokens: Any, positions: Any, cache: Any, mask: Any) -> tuple[np.ndarray, Any]:
    logits, cache = call(model, jnp.asarray(tokens), jnp.asarray(positions), cache, jnp.asarray(mask))
    return np.asarray(logits, np.float64), cache


def padded(side: Side) -> Padded:
    return pad([TOKENS[row, :length] for row, length in enumerate(LENGTHS)], side, PAD)


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_are_those_of_the_files_whatever_the_padding(directory: Path, side: Side) -> None:
    tokens, filled, positions, mask = padded(side)
    logits, _ = run(load(directory), tokens, positions, None, mask)
    for row, reference in enumerate(expected(directory)):
        np.testing.assert_allclose(logits[row, filled[row]], reference, atol=1e-4)


def test_what_stands_in_the_padding_does_not_matter(directory: Path) -> None:
    tokens, filled, positions, mask = padded("left")
    logits, _ = run(load(directory), tokens, positions, None, mask)
    noise = np.where(filled, tokens, 7)
    other, _ = run(load(directory), noise, np.where(filled, positions, 3), None, mask)
    np.testing.assert_array_equal(logits[filled], other[filled])


def test_prefill_and_single_steps_through_the_cache_give_the_logits_of_the_whole(directory: Path) -> None:
    """Prompts padded on the left, then token by token, with slots to spare: as the sampler goes."""
    prompt, spare = 6, 3
    model = load(directory)
    tokens, filled, positions, mask = padded("left")
    # Rows are of one length after the prompt, so those that are shorter have a prompt of padding alone.
    visible = np.pad(mask, ((0, 0), (0, 0), (0, spare)))
    cache = model.init_cache(len(LENGTHS), T + spare, jnp.dtype("float32"))
    logits, cache = run(model, tokens[:, :prompt], positions[:, :prompt], cache, visible[:, :prompt])
    steps = [logits]
    for t in range(prompt, T):
        now = slice(t, t + 1)
        logits, cache = run(model, tokens[:, now], positions[:, now], cache, visible[:, now])
        steps.append(logits)
    found = np.concatenate(steps, axis=1)
    for row, reference in enumerate(expected(directory)):
        np.testing.assert_allclose(found[row, filled[row]], reference, atol=1e-4)


def test_hidden_states_are_projected_to_the_logits(directory: Path) -> None:
    model = load(directory)
    tokens, _, positions, mask = padded("right")
    arguments = jnp.asarray(tokens), jnp.asarray(positions), None, jnp.asarray(mask)

    @nnx.jit
    def both_ways(model: Any) -> tuple[jax.Array, jax.Array]:  # one program, since two may round differently
        hidden, _ = model(*arguments, output_hidden=True)
        return model(*arguments)[0], model.project(hidden)

    at_once, in_two_steps = both_ways(model)
    assert np.abs(at_once).max() > 0.1
    np.testing.assert_allclose(np.asarray(in_two_steps), np.asarray(at_once), atol=1e-6)


def test_in_bfloat16_the_error_is_that_of_its_rounding(directory: Path) -> None:
    tokens, filled, positions, mask = padded("left")
    logits, _ = run(load(directory, "bfloat16"), tokens, positions, None, mask)
    reference = np.concatenate(expected(directory))
    error = np.concatenate([logits[row, filled[row]] for row in range(len(LENGTHS))]) - reference
    # A number is rounded by up to 2^-9 of itself, some twenty times in a row on the way to a logit.
    assert np.sqrt((error**2).mean()) < 20 * 2**-9 * np.sqrt((reference**2).mean())


def test_tokens_beyond_the_window_are_seen_by_no_sliding_layer(tmp_path: Path) -> None:
    """With sliding layers alone and L of them, what is L windows back has no way to the present."""
    kinds = ["sliding_attention"] * 2
    directory = make_family(tmp_path / "model", "gemma2", num_hidden_layers=2, layer_types=kinds)
    one = np.arange(1, T + 1)[None]
    other = one.copy()
    other[0, 0] = 30
    positions, mask = np.arange(T)[None], np.tril(np.ones((1, T, T), bool))
    before, after = (run(load(directory), tokens, positions, None, mask)[0][0] for tokens in (one, other))
    reach = 2 * (WINDOW - 1)
    np.testing.assert_array_equal(before[reach + 1 :], after[reach + 1 :])
    assert (before[: reach + 1] != after[: reach + 1]).any(axis=-1).all()


# The parts.


@pytest.mark.parametrize(
    ("rope", "expected_ratio"),
    [
        (Rope(10_000.0), [1.0, 1.0, 1.0, 1.0]),
        (Rope(10_000.0, "linear", 8.0), [1 / 8] * 4),
        # Wavelengths are 6.3, 63, 628 and 6283 tokens: below 200/4 kept, above 200/1 stretched.
        (Rope(10_000.0, "llama3", 8.0, 1.0, 4.0, 200), [1.0, None, 1 / 8, 1 / 8]),
    ],
    ids=lambda value: value.kind if isinstance(value, Rope) else "",
)
def test_frequencies_are_stretched_as_their_kind_says(rope: Rope, expected_ratio: list[float | None]) -> None:
    found = np.asarray(frequencies(rope, 8), np.float64) / 10_000.0 ** (-np.arange(0, 8, 2) / 8)
    between = 1 / 8 + 7 / 8 * (200 / (2 * math.pi * 10) - 1) / 3
    np.testing.assert_allclose(found, [between if ratio is None else ratio for ratio in expected_ratio], rtol=1e-6)


def test_frequencies_are_right_to_the_last_bit_of_float32() -> None:
    """An error is multiplied by the position, up to 131,072 of them."""
    exact = 500_000.0 ** (-np.arange(0, 128, 2) / 128)
    np.testing.assert_array_equal(np.asarray(frequencies(Rope(500_000.0), 128)), exact.astype(np.float32))


# Norms, whose gradient is written out.


def norm_as_told(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """The formula, of which JAX derives the gradient."""
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4, 5)])
def test_the_gradient_of_a_norm_is_that_of_its_formula(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, weights = (jnp.asarray(rng.normal(size=shape)) for _ in range(2))
        scale = jnp.asarray(rng.normal(size=shape[-1]))
        for number in range(2):
            found, told = (
                jax.grad(lambda *args, of=of: (of(*args, 0.1) * weights).sum(), number)(x, scale)
                for of in (rms_norm, norm_as_told)
            )
            assert found.shape == told.shape
            np.testing.assert_allclose(found, told, rtol=1e-12, atol=1e-14)


def test_a_norm_keeps_what_it_was_given_and_a_number_for_each_token() -> None:
    x, scale = jnp.ones((7, 16)), jnp.ones(16)
    _, backward = jax.vjp(lambda *args: rms_norm(*args, 1e-6), x, scale)
    kept = sorted(leaf.shape for leaf in jax.tree.leaves(backward))
    assert kept == [(7, 1), (7, 16), (16,)]
