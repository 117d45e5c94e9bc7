"""The compiled programs of continuous batching: read pieces of prompts, and write some tokens, in rows of a cache.

The cache has a row, a *place*, for each request that is answered at a time. The token at position p of a text lies in
slot p of its place. A program takes the first slots of some places as the prefix that its rows continue
(`policy/network/decoder.py`), one row for each, computes with a small cache of its own, and then adds that to the
places. So rows of any length write side by side, with one slice for each token, as rows of a batch or an episode do.

Axes: N places, S slots of a place, W of them that a program reads, n rows of a program, C tokens of a piece, T tokens
to write, A alternatives, V words.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from agent_tunix.policy.network.decoder import Prefix, map_layers
from agent_tunix.sampling.token_choice import RowSampling, SampledTokens, SamplingParams, TokenRules, find_likeliest
from agent_tunix.sampling.turns import continue_texts

# Tokens of a prompt whose logits exist at once.
_LOGITS_AT_ONCE = 16


class PieceInputs(NamedTuple):
    """Pieces of texts to read.

    Attributes:
        places: Place of each row; N or more at a row that takes no part.
        filled: Tokens that the place holds, which the piece continues.
        tokens: Ids, padded on the right.
        lengths: Tokens of each piece; 0 at a row that takes no part.
        targets: The token after each of `tokens`, whose log-probability may be wanted.
        temperature: Temperature of these log-probabilities.
    """

    places: Int[np.ndarray, " n"]
    filled: Int[np.ndarray, " n"]
    tokens: Int[np.ndarray, "n C"]
    lengths: Int[np.ndarray, " n"]
    targets: Int[np.ndarray, "n C"]
    temperature: Float[np.ndarray, " n"]


class WritingInputs(NamedTuple):
    """The state with which rows begin to write.

    Attributes:
        places: Place of each row; N or more at a row that takes no part.
        filled: Tokens that the place holds.
        tokens: The token after them, which the model has not read.
        limits: Maximum tokens that the row may write; 0 for a row that takes no part.
        written: Tokens that the row has written before; they choose its random numbers.
        keys: The two words of each row's PRNG key.
        least: Number of rows that a smaller program has places for. When only so many go on, the program ends.
        sampling: How each row chooses its tokens.
    """

    places: Int[np.ndarray, " n"]
    filled: Int[np.ndarray, " n"]
    tokens: Int[np.ndarray, " n"]
    limits: Int[np.ndarray, " n"]
    written: Int[np.ndarray, " n"]
    keys: Int[np.ndarray, "n 2"]
    least: Int[np.ndarray, ""]
    sampling: RowSampling


def new_places(graphdef: Any, state: Any, *, num_places: int, num_slots: int) -> Any:
    """Return the layers of an empty cache of N places."""
    model: Any = nnx.merge(graphdef, state)
    return model.init_cache(num_places, num_slots, model.dtype)["layers"]


def copy_place(places: Any, source: Int[Array, ""], target: Int[Array, ""]) -> Any:
    """Return the places, with one of them a copy of another."""
    return jax.tree.map(lambda x: x.at[target].set(x[source]), places)


def read_pieces(
    graphdef: Any,
    state: Any,
    places: Any,
    inputs: PieceInputs,
    *,
    window: int,
    num_alternatives: int | None = None,
) -> tuple[Any, Any]:
    """Read a piece of a text in each row.

    Args:
        graphdef: Graph of the decoder.
        state: Weights of the decoder.
        places: The places; not to be used again.
        inputs: The pieces.
        window: W, at least the tokens that any place holds.
        num_alternatives: Likeliest tokens to report at each place with the log-probabilities of `targets`; None for
            neither.

    Returns:
        The places, and the [n, C] log-probabilities, [n, C, A] likeliest tokens and their log-probabilities, if wanted.
    """
    model: Any = nnx.merge(graphdef, state)
    inputs = PieceInputs(*map(jnp.asarray, inputs))
    n, C = inputs.tokens.shape
    prefix, c_C = _prefix(places, inputs.places, inputs.filled, window), jnp.arange(C)
    is_token_nC = c_C < inputs.lengths[:, None]
    causal_nCC = is_token_nC[:, None] & (c_C <= c_C[:, None])
    hidden_nCD, cache = model(
        inputs.tokens,
        inputs.filled[:, None] + c_C,
        model.init_cache(n, C, model.dtype, prefix=prefix),
        causal_nCC,
        prefix=prefix,
        output_hidden=True,
    )
    places = _add(places, cache["layers"], inputs.places, inputs.filled)
    return places, None if num_alternatives is None else _score(model, hidden_nCD, inputs, num_alternatives)


def _score(model: Any, hidden_nCD: Float[Array, "n C D"], inputs: PieceInputs, num_alternatives: int) -> Any:
    """Return the log-probabilities of the targets, and the likeliest tokens, for some tokens at a time."""

    def score(arrays: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        hidden_LD, target_L, temperature_L = arrays
        logits_LV = model.project(hidden_LD[None])[0]
        scaled_LV = logits_LV.astype(jnp.float32) / temperature_L[:, None]
        logp_L = jnp.take_along_axis(scaled_LV, target_L[:, None], axis=1)[:, 0] - jax.nn.logsumexp(scaled_LV, axis=1)
        return (
            logp_L,
            *(find_likeliest(logits_LV, temperature_L, num_alternatives) if num_alternatives else (None, None)),
        )

    n, C, _ = hidden_nCD.shape
    temperature_nC = jnp.broadcast_to(inputs.temperature[:, None], (n, C))
    parts = [
        x.reshape(-1, _LOGITS_AT_ONCE, *x.shape[2:]) for x in (hidden_nCD, jnp.asarray(inputs.targets), temperature_nC)
    ]
    scores = jax.lax.map(score, tuple(parts))
    return jax.tree.map(lambda x: x.reshape(n, C, *x.shape[2:]), scores)


def write_tokens(
    graphdef: Any,
    state: Any,
    places: Any,
    inputs: WritingInputs,
    *,
    num_tokens: int,
    window: int,
    pad_id: int,
    eos_ids: tuple[int, ...],
    num_alternatives: int = 0,
) -> tuple[Any, SampledTokens]:
    """Write up to T tokens in each row, with the loop that writes a turn of an episode (`sampling/turns.py`).

    Args:
        graphdef: Graph of the decoder.
        state: Weights of the decoder.
        places: The places; not to be used again.
        inputs: State with which the rows begin.
        num_tokens: T.
        window: W, at least the tokens that any place holds.
        pad_id: Padding id. It is never sampled, unless it is also an end-of-sequence id.
        eos_ids: Ids that end a row.
        num_alternatives: A.

    Returns:
        The places with all tokens but the last of each row, and the tokens.
    """
    model: Any = nnx.merge(graphdef, state)
    inputs = jax.tree.map(jnp.asarray, inputs)
    prefix = _prefix(places, inputs.places, inputs.filled, window)
    turn, cache = continue_texts(
        model,
        prefix,
        inputs.tokens,
        inputs.limits,
        inputs.least,
        _draw_noise(inputs, num_tokens),
        TokenRules(SamplingParams(num_tokens), pad_id, eos_ids, None, inputs.sampling),
        num_alternatives=num_alternatives,
    )
    return _add(places, cache["layers"], inputs.places, inputs.filled), turn


def _draw_noise(inputs: WritingInputs, num_tokens: int) -> Float[Array, "T n 2"]:
    """Return the random numbers of each token, which depend only on the row's key and the token's number."""
    key_n = jax.random.wrap_key_data(inputs.keys, impl="threefry2x32")

    def draw(key: jax.Array, number: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, number), (2,), jnp.float32)

    return jax.vmap(lambda t: jax.vmap(draw)(key_n, inputs.written + t))(jnp.arange(num_tokens))


def _prefix(places: Any, place_n: Int[Array, " n"], filled_n: Int[Array, " n"], window: int) -> Prefix:
    """Return what some places hold, as the prefix of a row each."""

    def of_slots(x: jax.Array) -> jax.Array:
        def take(place: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice(x, (place, 0, 0, 0), (1, x.shape[1], window, x.shape[3]))[0]

        return jax.vmap(take)(place_n)

    def of_rows(x: jax.Array) -> jax.Array:
        begins = (filled_n == 0).reshape(-1, *[1] * (x.ndim - 1))
        return jnp.where(begins, 0, x.at[place_n].get(mode="clip"))

    slot_W = jnp.arange(window)
    positions = jnp.broadcast_to(slot_W, (len(place_n), window))
    return Prefix(map_layers(of_slots, of_rows, places), positions, slot_W < filled_n[:, None])


def _add(places: Any, layers: Any, place_n: Int[Array, " n"], filled_n: Int[Array, " n"]) -> Any:
    """Return the places with new slots after those filled, and new states, of the rows that take part."""

    def of_slots(x: jax.Array, new: jax.Array) -> jax.Array:
        numbers = jax.lax.ScatterDimensionNumbers(
            update_window_dims=(1, 2, 3), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0, 2)
        )
        starts_n2 = jnp.stack([place_n, filled_n], axis=1)
        mode = jax.lax.GatherScatterMode.FILL_OR_DROP
        return jax.lax.scatter(x, starts_n2, new, numbers, unique_indices=True, mode=mode)

    return map_layers(of_slots, lambda x, new: x.at[place_n].set(new, mode="drop"), places, layers)
