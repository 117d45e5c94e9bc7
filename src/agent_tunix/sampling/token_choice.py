"""The choice of a token from logits: greedy, temperature, top-k, top-p and min-p.

A token is drawn by inverting the distribution function, with two uniform random numbers: the first chooses a run of
about √V words by its mass, the second a word of the run. Noise for every word (the Gumbel trick of
`jax.random.categorical`) needs V random numbers per token, which on a CPU costs more than the rest of a decode step of
a small model. With two levels, no word is lost to rounding in a sum over a large vocabulary.

The words to keep are found by bisection on the weight of a word, without sorting. The bisection needs 31 sums over the
vocabulary; sorting 32,000 words takes twenty times as long on a CPU.

Axes: N rows, V words, T tokens of a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.config.episodes import turn_tokens
from agent_tunix.config.schema import Config
from agent_tunix.sampling.stop_strings import STOPPED

# The bits of 1.0. Non-negative floats have the same order as their bits read as integers.
_ONE = 0x3F800000
_NUM_BISECTIONS = 31
# Value of top-k that keeps all words.
KEEP_ALL = 2**31 - 1


@dataclass(frozen=True)
class SamplingParams:
    """Parameters of the choice of tokens. They apply in this order: temperature, top-k, top-p of the rest, min-p.

    Attributes:
        max_new_tokens: T.
        temperature: Above 0; ignored if greedy.
        top_k: Keep only the k likeliest tokens, and those as likely as the last of them; None keeps all.
        top_p: Keep the smallest set of tokens with this probability, and those as likely as the last; 1 keeps all.
        greedy: Always choose the likeliest token.
        min_p: Keep only tokens at least this many times as likely as the likeliest (https://arxiv.org/abs/2407.01082);
            0 keeps all.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    greedy: bool = False
    min_p: float = 0.0

    @classmethod
    def of_training(cls, config: Config) -> "SamplingParams":
        """Return the parameters of training."""
        generation = config.generation
        return cls(
            max_new_tokens=turn_tokens(config),
            temperature=generation.temperature,
            top_k=generation.top_k,
            top_p=generation.top_p,
            min_p=generation.min_p,
        )

    @property
    def of_request(self) -> dict[str, Any]:
        """The fields of a `TokenRequest` that choose its tokens in this way."""
        if self.greedy:
            return {"temperature": 0.0, "top_k": None, "top_p": 1.0, "min_p": 0.0}
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}


class RowSampling(NamedTuple):
    """The choice of tokens in each row, where rows differ; the attributes are those of `SamplingParams`.

    Attributes:
        temperature: Above 0; 1 for greedy rows.
        top_k: `KEEP_ALL` keeps all.
        top_p: 1 keeps all.
        min_p: 0 keeps all.
        greedy: True at rows that always choose the likeliest token.
    """

    temperature: Float[Array, " N"]
    top_k: Int[Array, " N"]
    top_p: Float[Array, " N"]
    min_p: Float[Array, " N"]
    greedy: Bool[Array, " N"]


class SampledTokens(NamedTuple):
    """The tokens that rows have written.

    Attributes:
        tokens: Ids, padded after the end.
        logps: Log-probability of each token; 0 at padding.
        lengths: Tokens of each row, an end-of-sequence token included.
        ended: True if the row wrote an end-of-sequence token or a stop string.
        stop_state: State of each row in the table of stop strings; None without stop strings.
        likeliest: Ids and log-probabilities of the A likeliest tokens at each place; None if not wanted.
    """

    tokens: Int[Array, "N T"]
    logps: Float[Array, "N T"]
    lengths: Int[Array, " N"]
    ended: Bool[Array, " N"]
    stop_state: Int[Array, " N"] | None
    likeliest: tuple[Int[Array, "N T A"], Float[Array, "N T A"]] | None = None

    @classmethod
    def empty(
        cls,
        num_rows: int,
        num_tokens: int,
        pad_id: int,
        stop_state: Int[Array, " N"] | None,
        num_alternatives: int = 0,
    ) -> "SampledTokens":
        """Return the tokens of rows that have written nothing."""
        shape = num_rows, num_tokens, num_alternatives
        return cls(
            jnp.full((num_rows, num_tokens), pad_id, jnp.int32),
            jnp.zeros((num_rows, num_tokens), jnp.float32),
            jnp.zeros(num_rows, jnp.int32),
            jnp.zeros(num_rows, jnp.bool_),
            stop_state,
            (jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.float32)) if num_alternatives else None,
        )


@dataclass(frozen=True)
class TokenRules:
    """The rules by which all rows of a call choose their tokens and end.

    Attributes:
        sampling: How tokens are chosen.
        pad_id: Padding id. It is never sampled, unless it is also an end-of-sequence id.
        eos_ids: End-of-sequence ids.
        stop_table: Table of `make_stop_table`; None without stop strings.
        by_row: How each row chooses its tokens, if rows differ. Only `max_new_tokens` of `sampling` counts then.
    """

    sampling: SamplingParams
    pad_id: int
    eos_ids: tuple[int, ...]
    stop_table: Int[Array, "S V"] | None
    by_row: RowSampling | None = None

    def sample(
        self,
        t: Int[Array, ""],
        logits_NV: Float[Array, "N V"],
        uniforms_N2: Float[Array, "N 2"] | None,
        done_N: Bool[Array, " N"],
        sampled: SampledTokens,
    ) -> tuple[Int[Array, " N"], SampledTokens]:
        """Sample token t of each row.

        Args:
            t: Place of the token in `sampled`.
            logits_NV: Logits of the model.
            uniforms_N2: Random numbers in [0, 1); None if greedy.
            done_N: True at rows that write no more; they get padding.
            sampled: Tokens so far.

        Returns:
            The tokens, and all tokens so far with them.
        """
        # In some tokenizers padding and end-of-sequence share an id. A row must still be able to end.
        forbidden = None if self.pad_id in self.eos_ids else self.pad_id
        if self.by_row is None:
            token_N, logp_N = choose(logits_NV, uniforms_N2, self.sampling, forbidden)
        else:
            assert uniforms_N2 is not None
            token_N, logp_N = choose_by_row(logits_NV, uniforms_N2, self.by_row, forbidden)
        token_N = jnp.where(done_N, self.pad_id, token_N).astype(jnp.int32)
        logp_N = jnp.where(done_N, 0.0, logp_N)
        ends_N, stop_state_N = ends(token_N, self.eos_ids, self.stop_table, sampled.stop_state)
        return token_N, SampledTokens(
            jax.lax.dynamic_update_slice_in_dim(sampled.tokens, token_N[:, None], t, axis=1),
            jax.lax.dynamic_update_slice_in_dim(sampled.logps, logp_N[:, None], t, axis=1),
            sampled.lengths + ~done_N,
            sampled.ended | (~done_N & ends_N),
            stop_state_N,
            self._add_likeliest(t, logits_NV, sampled.likeliest),
        )

    def _add_likeliest(self, t: Int[Array, ""], logits_NV: Float[Array, "N V"], likeliest: Any) -> Any:
        if likeliest is None:
            return None
        assert self.by_row is not None
        found = find_likeliest(logits_NV, self.by_row.temperature, likeliest[0].shape[-1])
        return tuple(
            jax.lax.dynamic_update_slice_in_dim(whole, part[:, None], t, axis=1)
            for whole, part in zip(likeliest, found, strict=True)
        )


def uniforms(key: jax.Array, position: Int[Array, ""] | int, num_rows: int) -> Float[Array, "N 2"]:
    """Return the random numbers of one position, in [0, 1).

    The numbers of a row depend only on the key, the position and the row's number. They do not depend on the number of
    rows, on which of them have ended, or on the mesh.
    """
    return jax.random.uniform(jax.random.fold_in(key, position), (num_rows, 2), jnp.float32)


def choose(
    logits_NV: Float[Array, "N V"],
    uniforms_N2: Float[Array, "N 2"] | None,
    sampling: SamplingParams,
    forbidden: int | None,
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Choose a token of each row, and compute its log-probability.

    Args:
        logits_NV: Logits of the model.
        uniforms_N2: Random numbers in [0, 1); None if greedy.
        sampling: How tokens are chosen.
        forbidden: Token that is never chosen; None allows all.

    Returns:
        The tokens, and their log-probabilities at the sampling temperature (1 if greedy) over all words, the forbidden
        one included, before top-k, top-p and min-p. The training loss uses the same distribution.
    """
    logits_NV = logits_NV.astype(jnp.float32) / (1.0 if sampling.greedy else sampling.temperature)
    allowed_NV, weights_NV, highest_N1, normaliser_N = _weigh(logits_NV, forbidden)
    if sampling.greedy:
        # The first word of weight 1 would not do: XLA may round a softcapped logit and the highest one differently.
        token_N = jnp.argmax(allowed_NV, axis=-1).astype(jnp.int32)
    else:
        assert uniforms_N2 is not None
        token_N = pick(keep(weights_NV, sampling.top_k, sampling.top_p, sampling.min_p), uniforms_N2)
    chosen_N = jnp.take_along_axis(logits_NV, token_N[:, None], axis=-1)[:, 0]
    return token_N, chosen_N - highest_N1[:, 0] - normaliser_N


def choose_by_row(
    logits_NV: Float[Array, "N V"], uniforms_N2: Float[Array, "N 2"], rows: RowSampling, forbidden: int | None
) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Choose a token of each row as `choose` does, with parameters of its own.

    A call in which no row leaves words out, or none is greedy, does not pay for it.
    """
    logits_NV = logits_NV.astype(jnp.float32) / rows.temperature[:, None]
    allowed_NV, weights_NV, highest_N1, normaliser_N = _weigh(logits_NV, forbidden)

    def keep_by_row(weights_NV: jax.Array) -> jax.Array:
        weights_NV = _keep_top_k(weights_NV, rows.top_k)
        # The sum of all words but the least likely may round to the sum of all.
        weights_NV = _keep_top_p(weights_NV, jnp.where(rows.top_p < 1.0, rows.top_p, jnp.inf))
        return jnp.where(weights_NV >= rows.min_p[:, None], weights_NV, 0.0)

    filters_N = (rows.top_k < logits_NV.shape[-1]) | (rows.top_p < 1.0) | (rows.min_p > 0.0)
    kept_NV = jax.lax.cond(filters_N.any(), keep_by_row, lambda weights: weights, weights_NV)
    token_N = pick(kept_NV, uniforms_N2)
    likeliest_N = jax.lax.cond(
        rows.greedy.any(), lambda: jnp.argmax(allowed_NV, axis=-1).astype(token_N.dtype), lambda: token_N
    )
    token_N = jnp.where(rows.greedy, likeliest_N, token_N)
    chosen_N = jnp.take_along_axis(logits_NV, token_N[:, None], axis=-1)[:, 0]
    return token_N, chosen_N - highest_N1[:, 0] - normaliser_N


def find_likeliest(
    logits_NV: Float[Array, "N V"], temperature_N: Float[Array, " N"], count: int
) -> tuple[Int[Array, "N A"], Float[Array, "N A"]]:
    """Return the likeliest tokens of each row, and their log-probabilities over all words."""
    logps_NV = jax.nn.log_softmax(logits_NV.astype(jnp.float32) / temperature_N[:, None])
    logps_NA, ids_NA = jax.lax.top_k(logps_NV, count)
    return ids_NA, logps_NA


def _weigh(
    logits_NV: Float[Array, "N V"], forbidden: int | None
) -> tuple[Float[Array, "N V"], Float[Array, "N V"], Float[Array, "N 1"], Float[Array, " N"]]:
    """Return the logits of allowed words, their weights, the highest logit, and the log of the sum of all weights."""
    allowed_NV = logits_NV
    if forbidden is not None:
        allowed_NV = jnp.where(jnp.arange(logits_NV.shape[-1]) == forbidden, -jnp.inf, logits_NV)
    highest_N1 = allowed_NV.max(axis=-1, keepdims=True)
    weights_NV = jnp.exp(allowed_NV - highest_N1)
    normaliser_N = jnp.log(weights_NV.sum(axis=-1))
    if forbidden is not None:
        normaliser_N = jnp.logaddexp(normaliser_N, logits_NV[:, forbidden] - highest_N1[:, 0])
    return allowed_NV, weights_NV, highest_N1, normaliser_N


def ends(
    token_N: Int[Array, " N"],
    eos_ids: tuple[int, ...],
    stop_table_SV: Int[Array, "S V"] | None,
    stop_state_N: Int[Array, " N"] | None,
) -> tuple[Bool[Array, " N"], Int[Array, " N"] | None]:
    """Return True at the tokens that end their rows, and the rows' next states in the table of stop strings.

    Args:
        token_N: Tokens chosen.
        eos_ids: End-of-sequence ids.
        stop_table_SV: Table of `make_stop_table`; None without stop strings.
        stop_state_N: State of each row; None without stop strings.
    """
    ends_N = jnp.isin(token_N, jnp.array(eos_ids))
    if stop_table_SV is None:
        return ends_N, None
    state_N = stop_table_SV[stop_state_N, token_N].astype(jnp.int32)
    return ends_N | (state_N == STOPPED), jnp.maximum(state_N, 0)


def keep(weights_NV: Float[Array, "N V"], top_k: int | None, top_p: float, min_p: float) -> Float[Array, "N V"]:
    """Set the weights of the words that top-k, top-p and min-p leave out to 0. The likeliest word always stays.

    Args:
        weights_NV: Weights in proportion to probabilities. The largest of a row is 1.
        top_k: At least 1; None keeps all.
        top_p: Above 0.
        min_p: Below 1.
    """
    if top_k is not None and top_k < weights_NV.shape[-1]:
        weights_NV = _keep_top_k(weights_NV, top_k)
    if top_p < 1.0:
        weights_NV = _keep_top_p(weights_NV, top_p)
    if min_p > 0.0:
        weights_NV = jnp.where(weights_NV >= min_p, weights_NV, 0.0)
    return weights_NV


def _keep_top_k(weights_NV: Float[Array, "N V"], top_k: int | Int[Array, " N"]) -> Float[Array, "N V"]:
    # A word stays if fewer than k words are likelier.
    return _keep_while(weights_NV, lambda above_NV: above_NV.sum(axis=-1) < top_k)


def _keep_top_p(weights_NV: Float[Array, "N V"], top_p: float | Float[Array, " N"]) -> Float[Array, "N V"]:
    # A word stays if the likelier words together have less than top_p.
    enough_N = top_p * weights_NV.sum(axis=-1)
    return _keep_while(weights_NV, lambda above_NV: jnp.where(above_NV, weights_NV, 0.0).sum(axis=-1) < enough_N)


def _keep_while(
    weights_NV: Float[Array, "N V"], stays: Callable[[Bool[Array, "N V"]], Bool[Array, " N"]]
) -> Float[Array, "N V"]:
    """Set the weights below a threshold to 0. The threshold is the lowest at which `stays` holds.

    Args:
        weights_NV: Weights, at most 1.
        stays: Function of a mask of the words above a threshold. It returns True for rows in which words at the
            threshold stay. It must hold for all higher thresholds too.
    """
    order_NV = jax.lax.bitcast_convert_type(weights_NV, jnp.int32)

    def halve(_: jax.Array, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        fails_N, holds_N = bounds
        middle_N = fails_N + (holds_N - fails_N) // 2
        holds = stays(order_NV > middle_N[:, None])
        return jnp.where(holds, fails_N, middle_N), jnp.where(holds, middle_N, holds_N)

    N = weights_NV.shape[0]
    start = jnp.full(N, -1, jnp.int32), jnp.full(N, _ONE, jnp.int32)
    _, lowest_N = jax.lax.fori_loop(0, _NUM_BISECTIONS, halve, start)
    return jnp.where(order_NV >= lowest_N[:, None], weights_NV, 0.0)


def pick(weights_NV: Float[Array, "N V"], uniforms_N2: Float[Array, "N 2"]) -> Int[Array, " N"]:
    """Pick a word of each row with probability in proportion to its weight; never a word of weight 0."""
    N, V = weights_NV.shape
    width = 1 << ((V - 1).bit_length() + 1) // 2
    runs_NCW = jnp.pad(weights_NV, ((0, 0), (0, -V % width))).reshape(N, -1, width)
    run_N = _invert(runs_NCW.sum(axis=-1), uniforms_N2[:, 0])
    word_N = _invert(jnp.take_along_axis(runs_NCW, run_N[:, None, None], axis=1)[:, 0], uniforms_N2[:, 1])
    # With NaN weights no word is found; the result must still be a valid index.
    return jnp.minimum(run_N * width + word_N, V - 1)


def _invert(masses_NC: Float[Array, "N C"], uniform_N: Float[Array, " N"]) -> Int[Array, " N"]:
    """Return the first index whose cumulative mass exceeds the given share of the total."""
    upper_CC = jnp.triu(jnp.ones((masses_NC.shape[-1],) * 2, masses_NC.dtype))
    # A matrix product, because a scan takes many small steps. Its rounding may decrease the sum at an index of mass 0,
    # so such indices are excluded.
    sums_NC = jnp.where(masses_NC > 0, jnp.dot(masses_NC, upper_CC, precision=jax.lax.Precision.HIGHEST), 0.0)
    return _first(sums_NC > uniform_N[:, None] * sums_NC.max(axis=-1, keepdims=True))


def _first(found_NC: Bool[Array, "N C"]) -> Int[Array, " N"]:
    """Return the first index that is True, or the last index if none is. `jnp.argmax` is much slower on a CPU."""
    C = found_NC.shape[-1]
    return jnp.where(found_NC, jnp.arange(C, dtype=jnp.int32), C - 1).min(axis=-1)
