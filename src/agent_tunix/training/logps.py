"""Log-probabilities of completions, computed once for what completions have in common and in parts for the rest.

The one place where a model is called on whole completions: in the update, which differentiates it, and in the passes of
the reference policy and of the policy that sampled. A prompt goes through the model once, and its G completions attend
to it (the idea of https://arxiv.org/abs/2506.05433): (P + G T) tokens a group where the plain form has G (P + T).
Logits exist for `chunk` tokens at a time, in the backward pass as well, where they are computed again.

Axes: B prompts, G completions each, n = B × G, P prompt slots padded on the left, T completion slots padded on the
right, D hidden, V words.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.policy.decoder import Decoder

# Numbers that the logits of a chunk may have: 16 MB in float32.
CHUNK_NUMBERS = 1 << 22


class TokenStatistics(NamedTuple):
    """What is known of each token of some completions.

    Attributes:
        logps: Its log-probability at the sampling temperature, over all words.
        entropies: Entropy of the distribution at that temperature, in nats; without gradient.
    """

    logps: Float[Array, "n T"]
    entropies: Float[Array, "n T"]


def completion_statistics(
    model: Decoder,
    prompt_BP: Int[Array, "B P"],
    prompt_mask_BP: Bool[Array, "B P"],
    tokens_nT: Int[Array, "n T"],
    *,
    temperature: float,
    chunk: int | None = None,
) -> TokenStatistics:
    """Log-probability and entropy of every token; what stands at padding is to be ignored.

    Args:
        model: Under which.
        prompt_BP: Ids, padded on the left.
        prompt_mask_BP: True at tokens.
        tokens_nT: Ids of the completions, those of a prompt side by side.
        temperature: That they were sampled at.
        chunk: Tokens whose logits exist at once; None: as many as 16 MB hold.
    """
    n, T = tokens_nT.shape
    group = n // prompt_BP.shape[0]
    first_BD, prefix = model.read_prefix(prompt_BP, prompt_mask_BP)
    hidden_nTD = jnp.repeat(first_BD, group, axis=0)[:, None]
    if T > 1:  # The last token is predicted and predicts nothing, so that it need not be read.
        positions = jnp.repeat(prompt_mask_BP.sum(axis=1), group)[:, None] + jnp.arange(T - 1)
        causal = jnp.broadcast_to(jnp.tril(jnp.ones((T - 1, T - 1), jnp.bool_)), (n, T - 1, T - 1))
        read, _ = model(tokens_nT[:, :-1], positions, None, causal, prefix=prefix, output_hidden=True)
        hidden_nTD = jnp.concatenate([hidden_nTD, read], axis=1)
    flat = hidden_nTD.reshape(n * T, -1)
    logps, entropies = _in_chunks(model, flat, tokens_nT.reshape(-1), temperature, chunk)
    return TokenStatistics(logps.reshape(n, T), jax.lax.stop_gradient(entropies.reshape(n, T)))


def _in_chunks(
    model: Decoder, hidden_ND: Float[Array, "N D"], tokens_N: Int[Array, " N"], temperature: float, chunk: int | None
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    N = tokens_N.shape[0]
    chunk = min(N, chunk or max(1, CHUNK_NUMBERS // model.config.vocab_size))

    @jax.checkpoint
    def statistics(hidden_CD: jax.Array, tokens_C: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits_CV = model.project(hidden_CD) / temperature
        normaliser_C = jax.nn.logsumexp(logits_CV, axis=-1)
        chosen_C = jnp.take_along_axis(logits_CV, tokens_C[:, None], axis=-1)[:, 0]
        entropy_C = normaliser_C - jnp.sum(jnp.exp(logits_CV - normaliser_C[:, None]) * logits_CV, axis=-1)
        return chosen_C - normaliser_C, jax.lax.stop_gradient(entropy_C)

    if chunk == N:
        logps, entropies = statistics(hidden_ND, tokens_N)
        return logps, entropies
    count = -(-N // chunk)
    padded_ND = jnp.pad(hidden_ND, ((0, count * chunk - N), (0, 0)))
    padded_N = jnp.pad(tokens_N, (0, count * chunk - N))
    logps, entropies = jax.lax.map(
        lambda pair: statistics(*pair), (padded_ND.reshape(count, chunk, -1), padded_N.reshape(count, chunk))
    )
    return logps.reshape(-1)[:N], entropies.reshape(-1)[:N]
