"""The decoder of every family against NumPy: whole texts, padding, windows, the cache, bfloat16."""

import functools
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
from tests.tiers import in_tiers

from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder
from agent_tunix.policy.network.decoder import Decoder

# Three texts, one shorter than the window of Gemma's sliding layers and two longer.
LENGTHS = (13, WINDOW - 2, 9)
T = max(LENGTHS)
TOKENS = np.random.default_rng(1).integers(0, 32, (len(LENGTHS), T))
PAD = 31


# The other families and ties are slow: their parts are those of these.
@pytest.fixture(
    scope="module",
    params=in_tiers(list(FAMILY_CONFIGS), "qwen3", "gemma3_text"),
)
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
