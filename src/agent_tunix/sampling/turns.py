"""The compiled programs of episodes: read prompts, sample a turn, rearrange the cache between turns.

The cache of an episode is kept over its turns. A turn first reads the *chunk*: the last token that the policy wrote,
which the model has not read yet, and the reply of tools or the environment. Each row reads its chunk at its own
position. Then all rows write their turn, one token of each row at a time.

A call may also end before the turns do. The next call continues with the last token as the chunk.

Within a call all rows write to the same slots of the cache, so that a write is one slice. Rows of other lengths leave
slots unused. Between turns `pack` moves the slots of each row together and leaves out rows that have ended.

Axes: B prompts, n rows, S slots of the cache, C tokens of the chunk, T of a turn, L of an episode, V words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.planning.cache_plan import Stage
from agent_tunix.policy.network.decoder import Prefix, map_layers
from agent_tunix.sampling.compaction import (
    Arrangement,
    arrange,
    collect_rows,
    goes_on,
    has_row,
    live_rows,
    move_rows,
    prompts_of,
)
from agent_tunix.sampling.token_choice import SampledTokens, SamplingParams, TokenRules, uniforms


class TurnInputs(NamedTuple):
    """The state with which the rows of a turn begin.

    Attributes:
        chunk: Ids to read first, padded on the right.
        chunk_lengths: Tokens of each chunk, at least 1.
        filled: Slots of the cache that hold tokens of the row: the first ones.
        positions: Position of the chunk's first token in the row's text.
        limits: Maximum tokens that the row may write; 0 for a row that takes no part.
        written: Number of the turn's first token in the episode, which chooses its random numbers.
        rows: Number of the row in the batch, for the same purpose.
        stop_states: State of the row in the table of stop strings; 0 at the beginning of a turn.
    """

    chunk: Int[Array | np.ndarray, "n C"]
    chunk_lengths: Int[Array | np.ndarray, " n"]
    filled: Int[Array | np.ndarray, " n"]
    positions: Int[Array | np.ndarray, " n"]
    limits: Int[Array | np.ndarray, " n"]
    written: Int[Array | np.ndarray, " n"]
    rows: Int[Array | np.ndarray, " n"]
    stop_states: Int[Array | np.ndarray, " n"]


class _Rows(NamedTuple):
    """Constants of rows while they write: their `TurnInputs`, and the slots that they may see before they write."""

    inputs: TurnInputs
    seen: Bool[Array, "n S"]


class _Carry(NamedTuple):
    t: Int[Array, ""]
    token: Int[Array, " n"]
    done: Bool[Array, " n"]
    cache: Any
    turn: SampledTokens


def draw_noise(key: jax.Array, *, num_tokens: int, num_rows: int) -> Float[Array, "L N 2"]:
    """Return the random numbers of each token and row, equal to those of `decode_loop` at the same places."""
    return jax.vmap(lambda t: uniforms(key, t, num_rows))(jnp.arange(num_tokens))


def read_prompts(graphdef: Any, state: Any, prompt_BP: Int[Array, "B P"], length_B: Int[Array, " B"]) -> Prefix:
    """Read texts, padded on the left, that rows will continue."""
    model: Any = nnx.merge(graphdef, state)
    prefix: Prefix = model.read_prefix(prompt_BP, length_B)[1]
    return prefix


def new_cache(graphdef: Any, state: Any, prefix: Prefix, *, num_rows: int, num_slots: int) -> Any:
    """Return an empty cache for rows that continue a prefix."""
    model: Any = nnx.merge(graphdef, state)
    return model.init_cache(num_rows, num_slots, model.dtype, prefix=prefix)


def pack(cache: Any, row_n: Int[Array, " n"], slot_nS: Int[Array, "n S"]) -> Any:
    """Return a cache with the given slots of the given rows.

    Args:
        cache: Cache of the turn before.
        row_n: Row of that cache for each row of the new one.
        slot_nS: Slot of that row for each slot of the new one; any slot where the new row has no token.
    """

    def of_slots(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x[row_n], slot_nS[:, None, :, None], axis=2)

    return {
        "layers": map_layers(of_slots, lambda x: x[row_n], cache["layers"]),
        "positions": jnp.take_along_axis(cache["positions"][row_n], slot_nS, axis=1),
        "length": cache["length"][row_n],
    }


def take_turn(
    graphdef: Any,
    state: Any,
    prefix: Prefix,
    cache: Any,
    inputs: TurnInputs,
    noise_LN2: Float[Array, "L N 2"] | None,
    stop_table: Int[Array, "S V"] | None,
    *,
    stages: Sequence[Stage],
    sampling: SamplingParams,
    pad_id: int,
    eos_ids: tuple[int, ...],
) -> tuple[SampledTokens, Any]:
    """Read a chunk in each row, then sample a turn.

    Rows whose turns have ended leave the batch until the turn ends for all (`compaction.py`).

    Args:
        graphdef: Graph of the decoder.
        state: Weights of the decoder.
        prefix: Prompts of the rows, n / B rows for each, side by side.
        cache: Cache whose slots the rows have filled as `inputs` says. The chunk starts at the first slot that no row
            has filled.
        inputs: State with which the rows begin.
        noise_LN2: Random numbers of `draw_noise`; None if sampling is greedy.
        stop_table: Table of `make_stop_table`; None without stop strings.
        stages: Stages from `planning/cache_plan.py`; their lengths are not used.
        sampling: How tokens are chosen; `max_new_tokens` is T.
        pad_id: Padding id. It is never sampled, unless it is also an end-of-sequence id.
        eos_ids: Ids that end a turn.

    Returns:
        The turn, and the cache. From the first slot that no row had filled, it now holds the C tokens of the chunk and
        then the tokens written, without the last one of each row.
    """
    model: Any = nnx.merge(graphdef, state)
    inputs = TurnInputs(*map(jnp.asarray, inputs))
    (n, C), T = inputs.chunk.shape, sampling.max_new_tokens
    chunk_slot = inputs.filled.max()
    logits_nV, cache, seen_nS = _read_chunk(model, prefix, cache, inputs, chunk_slot)
    writer = _Writer(
        model, TokenRules(sampling, pad_id, eos_ids, stop_table), noise_LN2, prefix.mask.shape[0], chunk_slot + C
    )
    with jax.named_scope("decode"):
        turn = SampledTokens.empty(n, T, pad_id, None if stop_table is None else jnp.asarray(inputs.stop_states))
        token_n, done_n, turn = writer.sample(jnp.int32(0), logits_nV, jnp.asarray(inputs.limits) <= 0, turn, inputs)
        carry, rows = _Carry(jnp.int32(0), token_n, done_n, cache, turn), _Rows(inputs, seen_nS)
        carry = writer.write(carry, rows, prefix, None, _next(stages, 0))
        turn, cache = carry.turn, carry.cache
        before: Arrangement | None
        arrangement: Arrangement | None = None
        for number, stage in enumerate(stages[1:], 1):
            before, arrangement = arrangement, arrange(live_rows(carry.done, writer.num_prompts, arrangement), stage)
            carry, rows = move_rows((carry, rows), before, arrangement)
            carry = carry._replace(done=carry.done | ~has_row(arrangement))
            carry = writer.write(carry, rows, prompts_of(prefix, arrangement), arrangement, _next(stages, number))
            turn = collect_rows(turn, carry.turn, arrangement)
            cache = _collect_written(cache, carry.cache, arrangement, writer.first_slot, T)
    return turn, cache


def continue_texts(
    model: Any,
    prefix: Prefix,
    token_n: Int[Array, " n"],
    limit_n: Int[Array, " n"],
    least: Int[Array, ""],
    noise_TN2: Float[Array, "T n 2"],
    rules: TokenRules,
    *,
    num_alternatives: int,
) -> tuple[SampledTokens, Any]:
    """Write up to T tokens after texts that all but their last token was read of.

    Args:
        model: The decoder.
        prefix: Text of each row without its last token.
        token_n: The last tokens.
        limit_n: Maximum tokens that each row may write; 0 for a row that takes no part.
        least: The loop ends when only so many rows go on; fewer than take part.
        noise_TN2: Random numbers of each token and row.
        rules: Rules of the choice of tokens, without stop strings.
        num_alternatives: Likeliest tokens to report with each token.

    Returns:
        The tokens, and a cache of T slots, which holds the last token of each text and those written but the last.
    """
    n, T = len(token_n), rules.sampling.max_new_tokens
    zeros_n, ones_n = jnp.zeros(n, jnp.int32), jnp.ones(n, jnp.int32)
    inputs = TurnInputs(
        token_n[:, None], ones_n, zeros_n, prefix.mask.sum(axis=1), limit_n, zeros_n, jnp.arange(n), zeros_n
    )
    turn = SampledTokens.empty(n, T, rules.pad_id, None, num_alternatives)
    # The loop reads the last token too: as token -1 of the turn, in the slot before the turn's first.
    seen_nS = jnp.broadcast_to(jnp.arange(T) == 0, (n, T))
    cache = model.init_cache(n, T, model.dtype, prefix=prefix)
    carry = _Carry(jnp.int32(-1), token_n, limit_n <= 0, cache, turn)
    with jax.named_scope("decode"):
        writer = _Writer(model, rules, noise_TN2, n, jnp.int32(1))
        carry = writer.write(carry, _Rows(inputs, seen_nS), prefix, None, Stage(least, 1, 0))  # type: ignore[arg-type]
    return carry.turn, carry.cache


def _read_chunk(
    model: Any, prefix: Prefix, cache: Any, inputs: TurnInputs, chunk_slot: Int[Array, ""]
) -> tuple[Float[Array, "n V"], Any, Bool[Array, "n S"]]:
    """Read the chunk of each row into the slots from `chunk_slot` on.

    Returns:
        The logits of the next token, the cache, and the slots that each row may see from now on.
    """
    c_C, slot_S = jnp.arange(inputs.chunk.shape[1]), jnp.arange(cache["positions"].shape[1])
    own_nS = slot_S < inputs.filled[:, None]
    in_chunk_nS = (slot_S >= chunk_slot) & (slot_S - chunk_slot < inputs.chunk_lengths[:, None])
    # A row that takes no part has no chunk, so that its recurrent states stay.
    in_chunk_nS &= (inputs.limits > 0)[:, None]
    cache = {**cache, "length": jnp.full_like(cache["length"], chunk_slot)}
    with jax.named_scope("read"):
        causal_nCS = own_nS[:, None] | (in_chunk_nS[:, None] & (slot_S <= chunk_slot + c_C[:, None]))
        hidden_nCD, cache = model(
            inputs.chunk, inputs.positions[:, None] + c_C, cache, causal_nCS, prefix=prefix, output_hidden=True
        )
        last_nD = jnp.take_along_axis(hidden_nCD, (inputs.chunk_lengths - 1)[:, None, None], axis=1)[:, 0]
        return model.project(last_nD), cache, own_nS | in_chunk_nS


@dataclass(frozen=True)
class _Writer:
    """The loop that writes the tokens of a turn after its chunk, with all that its stages share.

    Attributes:
        model: The decoder.
        rules: Rules of the choice of tokens.
        noise: [L, N, 2] random numbers of `draw_noise`; None if sampling is greedy.
        num_prompts: B.
        first_slot: Slot of the cache for the turn's first token.
    """

    model: Any
    rules: TokenRules
    noise: Float[Array, "L N 2"] | None
    num_prompts: int
    first_slot: Int[Array, ""]

    def sample(
        self, t: jax.Array, logits_nV: jax.Array, done_n: jax.Array, turn: SampledTokens, inputs: TurnInputs
    ) -> tuple[jax.Array, jax.Array, SampledTokens]:
        """Sample token t of each row; return the tokens, the rows that are done, and the turn so far."""
        noise_n2 = None
        if self.noise is not None:
            noise_n2 = self.noise.at[inputs.written + t, inputs.rows].get(mode="clip")
        token_n, turn = self.rules.sample(t, logits_nV, noise_n2, done_n, turn)
        return token_n, done_n | turn.ended | (turn.lengths >= inputs.limits), turn

    def write(
        self, carry: _Carry, rows: _Rows, prefix: Prefix, arrangement: Arrangement | None, smaller: Stage | None
    ) -> _Carry:
        """Write tokens until all rows have ended, or a smaller stage fits the rest."""
        inputs, first_slot = rows.inputs, self.first_slot

        def body(carry: _Carry) -> _Carry:
            t, token_n, done_n, cache, turn = carry
            slot_S = jnp.arange(cache["positions"].shape[1])
            written_S = (slot_S >= first_slot) & (slot_S <= first_slot + t)
            position_n = inputs.positions + inputs.chunk_lengths + t
            # For a row that has ended, this token is padding, so that the row's recurrent states do not change.
            seen_n1S = ((rows.seen | written_S) & ~(done_n[:, None] & (slot_S == first_slot + t)))[:, None]
            logits_n1V, cache = self.model(token_n[:, None], position_n[:, None], cache, seen_n1S, prefix=prefix)
            token_n, done_n, turn = self.sample(t + 1, logits_n1V[:, 0], done_n, turn, inputs)
            return _Carry(t + 1, token_n, done_n, cache, turn)

        def has_more(carry: _Carry) -> jax.Array:
            most = self.rules.sampling.max_new_tokens
            return (carry.t < most - 1) & goes_on(carry.done, self.num_prompts, arrangement, smaller)

        return jax.lax.while_loop(has_more, body, carry)


def _next(stages: Sequence[Stage], number: int) -> Stage | None:
    return stages[number + 1] if number + 1 < len(stages) else None


def _collect_written(cache: Any, part: Any, arrangement: Arrangement, start: jax.Array, num_slots: int) -> Any:
    """Write the slots that a stage may have filled back to their rows of the batch."""

    def collect(whole: jax.Array, part: jax.Array, axis: int) -> jax.Array:
        before, after = (jax.lax.dynamic_slice_in_dim(x, start, num_slots, axis) for x in (whole, part))
        return jax.lax.dynamic_update_slice_in_dim(whole, collect_rows(before, after, arrangement), start, axis)

    return {
        "layers": map_layers(
            lambda whole, part: collect(whole, part, 2),
            lambda whole, part: collect_rows(whole, part, arrangement),
            *(cache["layers"], part["layers"]),
        ),
        "positions": collect(cache["positions"], part["positions"], 1),
        "length": cache["length"],
    }
