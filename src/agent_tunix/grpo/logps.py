"""Log-probabilities of completions. Each prompt is read once, and logits exist only in chunks.

This is the only place where a model is called on whole completions: in updates, which differentiate it, and in the pass
of the reference policy. A prompt goes through the model once, and its G completions attend to it (the idea of
https://arxiv.org/abs/2506.05433): P + G T tokens per group instead of G (P + T). Only the logits of `chunk` tokens
exist at a time. The same holds in the backward pass, which computes them again, unless the output matrix is frozen.

Axes: B prompts, G completions each, n = B × G, P prompt slots padded on the left, T completion slots padded on the
right, D hidden, V words.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.grpo.head_kernel import HeadKernel, differentiable_statistics
from agent_tunix.planning.memory import chunk_tokens
from agent_tunix.policy.mesh import even_copies, is_on_tpu, row_axes, row_parts
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.experts import ExpertLoad


class TokenStatistics(NamedTuple):
    """Statistics of each token of some completions.

    Attributes:
        logps: Log-probability of the token at the sampling temperature, normalised over the whole vocabulary.
        entropies: Entropy of the distribution at that temperature, in nats; without gradient unless requested.
        likeliest: The likeliest token at that position; None unless requested.
        top: Ids of the k likeliest tokens at that position, or the ids that the caller passed; None unless requested.
        top_logps: Their log-probabilities.
        load: Number of tokens and summed router probabilities of each expert; None unless requested.
    """

    logps: Float[Array, "n T"]
    entropies: Float[Array, "n T"]
    likeliest: Int[Array, "n T"] | None = None
    top: Int[Array, "n T k"] | None = None
    top_logps: Float[Array, "n T k"] | None = None
    load: ExpertLoad | None = None


def completion_statistics(
    model: Decoder,
    prompt_BP: Int[Array, "B P"],
    prompt_lengths_B: Int[Array, " B"],
    tokens_nT: Int[Array, "n T"],
    *,
    temperature: float,
    mask_nT: Bool[Array, "n T"] | None = None,
    chunk: int | None = None,
    likeliest: bool = False,
    entropy_gradient: bool = False,
    top: int | Int[Array, "n T k"] | None = None,
    counted: Bool[Array, "n T"] | None = None,
) -> TokenStatistics:
    """Compute log-probability and entropy of every token. Ignore the values at padding.

    Args:
        model: Decoder that assigns the probabilities.
        prompt_BP: Ids, padded on the left.
        prompt_lengths_B: Tokens of each prompt.
        tokens_nT: Ids of the completions, those of a prompt side by side.
        temperature: Sampling temperature.
        mask_nT: Tokens whose values are used; None for all. The values of other tokens have no meaning.
        chunk: Tokens whose logits exist at once; by default `chunk_tokens`.
        likeliest: True to return the likeliest tokens too.
        entropy_gradient: True if entropies are differentiated.
        top: k, the number of likeliest words to find at each place; or the ids of words whose log-probabilities to
            return; None for neither.
        counted: Tokens whose load of experts is returned, except for the last of each row; None for none.
    """
    n, T = tokens_nT.shape
    copies = even_copies(model.mesh, len(prompt_BP), n)
    if copies > 1:
        # Devices that would all read the same prompt have a copy each, and read it together with their completions.
        prompt_BP, prompt_lengths_B = (jnp.repeat(x, copies, axis=0) for x in (prompt_BP, prompt_lengths_B))
    group = n // len(prompt_BP)
    # The model need not read the last token, because no token follows it. A TPU's compiler would copy arrays of an odd
    # number of tokens to other shapes many times in each layer, so there the model reads it too.
    num_read = T if is_on_tpu(model.mesh) else T - 1
    counted = None if counted is None else counted.at[:, -1].set(False)[:, :num_read]
    first_BD, read, load = model.read_groups(prompt_BP, prompt_lengths_B, tokens_nT[:, :num_read], counted)
    hidden_nTD = jnp.concatenate([jnp.repeat(first_BD, group, axis=0)[:, None], read[:, : T - 1]], axis=1)
    flat = hidden_nTD.reshape(n * T, -1)
    parts = row_parts(model.mesh, n)
    words_NK = None if top is None or isinstance(top, int) else top.reshape(n * T, -1)
    k = top if isinstance(top, int) else None
    mask_N = jnp.ones(n * T, jnp.bool_) if mask_nT is None else mask_nT.reshape(-1)
    found = None
    if not (likeliest or entropy_gradient or top is not None or chunk):
        found = _by_kernel(model, flat, tokens_nT, mask_N, temperature)
    flat_statistics = found or _in_chunks(
        model,
        (flat, tokens_nT.reshape(-1), words_NK),
        mask_N,
        temperature,
        chunk,
        likeliest,
        parts,
        entropy_gradient,
        k,
    )
    statistics: TokenStatistics = jax.tree.map(lambda x: x.reshape(n, T, *x.shape[1:]), flat_statistics)
    statistics = statistics._replace(load=load)
    if entropy_gradient:
        return statistics
    return statistics._replace(entropies=jax.lax.stop_gradient(statistics.entropies))


def _by_kernel(
    model: Decoder, hidden_ND: jax.Array, tokens_nT: jax.Array, mask_N: jax.Array, temperature: float
) -> TokenStatistics | None:
    """Return the statistics of N tokens by a kernel; None if there is none for this platform, or the matrix trains."""
    matrix_VD = model.head_rows if is_on_tpu(model.mesh) and model.head_is_frozen else None
    if model.mesh is None or matrix_VD is None:
        return None
    kernel = HeadKernel(model.mesh, temperature, model.config.final_softcap)
    if not kernel.supports(len(matrix_VD), len(mask_N)):
        return None
    axes = row_axes(model.mesh, len(tokens_nT))
    return TokenStatistics(
        *differentiable_statistics(kernel, hidden_ND, tokens_nT.reshape(-1), mask_N, matrix_VD, axes)
    )


def _in_chunks(
    model: Decoder,
    inputs: tuple[Float[Array, "N D"], Int[Array, " N"], Int[Array, "N k"] | None],
    mask_N: Bool[Array, " N"],
    temperature: float,
    chunk: int | None,
    likeliest: bool,
    parts: int,
    entropy_gradient: bool,
    k: int | None,
) -> TokenStatistics:
    """Return the statistics of N tokens from their hidden states, ids, and the words of `top` or None.

    On a mesh the N tokens lie in `parts`, side by side. A chunk takes an equal share of each part, so that every device
    has work.
    """
    N = inputs[1].shape[0]
    own = N // parts
    chunk = min(own, chunk or chunk_tokens(model.config, on_tpu=is_on_tpu(model.mesh)))
    project = model.project if parts == 1 or chunk == own else model.project_in_parts(parts)

    def statistics(hidden_CD: jax.Array, tokens_C: jax.Array, words_CK: jax.Array | None) -> TokenStatistics:
        logits_CV = project(hidden_CD) / temperature
        normaliser_C = jax.nn.logsumexp(logits_CV, axis=-1)
        chosen_C = jax.lax.platform_dependent(logits_CV, tokens_C, tpu=mask_and_add, default=look_up)
        entropy_C = normaliser_C - jnp.sum(jnp.exp(logits_CV - normaliser_C[..., None]) * logits_CV, axis=-1)
        top_C = jnp.argmax(logits_CV, axis=-1) if likeliest else None
        if not entropy_gradient:
            entropy_C = jax.lax.stop_gradient(entropy_C)
        top_CK = None
        if k is not None:
            top_CK, words_CK = jax.lax.top_k(logits_CV, min(k, logits_CV.shape[-1]))
        elif words_CK is not None:
            top_CK = jnp.take_along_axis(logits_CV, words_CK, axis=-1)
        top_logps_CK = None if top_CK is None else top_CK - normaliser_C[..., None]
        return TokenStatistics(chosen_C - normaliser_C, entropy_C, top_C, words_CK, top_logps_CK)

    one_device = model.mesh is None or model.mesh.size == 1
    only_logps_have_gradients = not entropy_gradient and k is None and inputs[2] is None
    if chunk < own and one_device and only_logps_have_gradients and model.head_is_frozen:
        return _once(statistics, inputs[0], inputs[1], mask_N, chunk)
    recomputed = jax.checkpoint(statistics)
    if chunk == own:
        whole: TokenStatistics = recomputed(*inputs)
        return whole
    count = -(-own // chunk)

    def to_chunks(x: jax.Array) -> jax.Array:
        """Return [count, chunk, …], or [count, parts, chunk, …] with several parts."""
        x = x.reshape(parts, own, *x.shape[1:])
        x = jnp.pad(x, ((0, 0), (0, count * chunk - own), *[(0, 0)] * (x.ndim - 2)))
        x = x.reshape(parts, count, chunk, *x.shape[2:]).swapaxes(0, 1)
        return x[:, 0] if parts == 1 else x

    def to_tokens(x: jax.Array) -> jax.Array:
        rest = x.shape[2 if parts == 1 else 3 :]
        x = x.reshape(count, parts, chunk, *rest).swapaxes(0, 1).reshape(parts, -1, *rest)
        return x[:, :own].reshape(-1, *rest)

    chunks_of_results = jax.lax.map(lambda chunks: recomputed(*chunks), jax.tree.map(to_chunks, inputs))
    token_statistics: TokenStatistics = jax.tree.map(to_tokens, chunks_of_results)
    return token_statistics


def look_up(logits_CV: Float[Array, "*C V"], tokens_C: Int[Array, "*C"]) -> Float[Array, "*C"]:
    """Return the logits of tokens."""
    return jnp.take_along_axis(logits_CV, tokens_C[..., None], axis=-1)[..., 0]


def mask_and_add(logits_CV: Float[Array, "*C V"], tokens_C: Int[Array, "*C"]) -> Float[Array, "*C"]:
    """Return what `look_up` does, as a sum, which XLA computes in a pass that reads the logits anyway.

    For a look-up, and for its gradient, a TPU writes all logits to its memory in float32.
    """
    is_chosen_CV = jnp.arange(logits_CV.shape[-1]) == tokens_C[..., None]
    return jnp.sum(jnp.where(is_chosen_CV, logits_CV, 0.0), axis=-1)


def _once(
    statistics: Callable[..., TokenStatistics],
    hidden_ND: Float[Array, "N D"],
    tokens_N: Int[Array, " N"],
    mask_N: Bool[Array, " N"],
    chunk: int,
) -> TokenStatistics:
    """Return the statistics of the tokens of a mask, for an output matrix that does not train; zeros elsewhere.

    Logits are computed once, and only for these tokens. The gradient of a token's log-probability with respect to its
    own hidden state does not depend on the loss. So the forward pass computes it too, and the backward pass scales it.
    """
    N = tokens_N.shape[0]
    # Tokens of the mask come first. Other tokens fill the last chunk, or the index N, whose result is not stored.
    order_N = jnp.pad(jnp.argsort(~mask_N), (0, -N % chunk), constant_values=N)
    num_chunks = -(-mask_N.sum() // chunk)

    def of_chunk(hidden_CD: jax.Array, tokens_C: jax.Array) -> TokenStatistics:
        return statistics(hidden_CD, tokens_C, None)

    # A function with its own derivative takes all arrays as arguments, the output matrix included.
    of_chunk, matrices = jax.closure_convert(of_chunk, hidden_ND[:chunk], tokens_N[:chunk])
    arrays = (tokens_N, order_N, num_chunks, *matrices)

    def with_slopes(hidden_CD: jax.Array, *others: jax.Array) -> tuple[TokenStatistics, jax.Array]:
        def logps(hidden_CD: jax.Array) -> tuple[jax.Array, TokenStatistics]:
            statistics = of_chunk(hidden_CD, *others)
            return statistics.logps, statistics

        logps_C, pull, statistics = jax.vjp(logps, hidden_CD, has_aux=True)
        return statistics, pull(jnp.ones_like(logps_C))[0]

    def run(of_chunk: Callable[..., Any], hidden_ND: jax.Array, *arrays: jax.Array) -> Any:
        tokens_N, order_N, num_chunks, *matrices = arrays
        shapes = jax.eval_shape(of_chunk, hidden_ND[:chunk], tokens_N[:chunk], *matrices)
        zeros = jax.tree.map(lambda x: jnp.zeros((N, *x.shape[1:]), x.dtype), shapes)

        def add_chunk(number: jax.Array, slopes: Any) -> Any:
            where = jax.lax.dynamic_slice_in_dim(order_N, number * chunk, chunk)
            new = of_chunk(hidden_ND[where], tokens_N[where], *matrices)
            return jax.tree.map(lambda whole, part: whole.at[where].set(part, mode="drop"), slopes, new)

        return jax.lax.fori_loop(0, num_chunks, add_chunk, zeros)

    def forward(*arguments: jax.Array) -> tuple[TokenStatistics, jax.Array]:
        results: tuple[TokenStatistics, jax.Array] = run(with_slopes, *arguments)
        return results

    def backward(slopes_ND: jax.Array, cotangents: TokenStatistics) -> tuple[jax.Array | None, ...]:
        return (cotangents.logps[:, None] * slopes_ND).astype(slopes_ND.dtype), *[None] * len(arrays)

    compute = jax.custom_vjp(functools.partial(run, of_chunk))
    compute.defvjp(forward, backward)
    result: TokenStatistics = compute(hidden_ND, *arrays)
    return result
