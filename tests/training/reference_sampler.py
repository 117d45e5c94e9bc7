"""A plain sampler in NumPy: no batch, no cache, no shared prompts, no padding on the left; sorted where we bisect."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.sampling.token_choice import SamplingParams

Logits = Callable[[Sequence[int]], np.ndarray]


def logits_of(model: Any, width: int) -> Logits:
    """Return a function from at most `width` ids to their [len(ids), V] logits, in one forward pass."""
    parts = nnx.split(model)

    def logits(ids: Sequence[int]) -> np.ndarray:
        # Filled up on the right, where a causal model cannot see it.
        tokens_1C = np.zeros((1, width), np.int32)
        tokens_1C[0, : len(ids)] = ids
        return np.array(_forward(*parts, tokens_1C))[0, : len(ids)]

    return logits


@jax.jit
def _forward(graphdef: Any, state: Any, tokens_1C: Any) -> jax.Array:
    model = nnx.merge(graphdef, state)
    C = tokens_1C.shape[1]
    logits, _ = model(tokens_1C, jnp.arange(C)[None], None, jnp.tril(jnp.ones((1, C, C), jnp.bool_)))
    return jnp.asarray(logits)


def logps_of(logits: Logits, prompt: Sequence[int], ids: Sequence[int], temperature: float) -> np.ndarray:
    """Return the [len(ids)] log-probabilities of a completion."""
    logits_TV = logits([*prompt, *ids])[len(prompt) - 1 : -1].astype(np.float64) / temperature
    logits_TV -= logits_TV.max(axis=-1, keepdims=True)
    logps_TV = logits_TV - np.log(np.exp(logits_TV).sum(axis=-1, keepdims=True))
    found: np.ndarray = logps_TV[range(len(ids)), ids]
    return found


def kept(logits_V: np.ndarray, top_k: int | None, top_p: float, min_p: float) -> np.ndarray:
    """Return the mask of the words that stay, by going through them from the likeliest down."""
    order = np.argsort(-logits_V, kind="stable")
    probs_V = np.exp(logits_V.astype(np.float64) - logits_V.max())
    if top_k is not None:
        # As likely as the last that stays: stays.
        order = order[logits_V[order] >= logits_V[order][:top_k][-1]]
    probs = probs_V[order] / probs_V[order].sum()
    before = np.concatenate([[0.0], np.cumsum(probs)[:-1]])
    lowest = logits_V[order[before < top_p]].min()
    stays_V = np.zeros(len(logits_V), bool)
    stays_V[order] = True
    kept_V: np.ndarray = stays_V & (logits_V >= lowest) & (probs_V >= min_p)
    return kept_V


def choose(logits_V: np.ndarray, uniforms: np.ndarray, sampling: SamplingParams, forbidden: int | None) -> int:
    """The word that two uniform numbers choose: a run of words by its mass, then one of its words."""
    logits_V = logits_V.astype(np.float64)
    if forbidden is not None:
        logits_V[forbidden] = -np.inf
    if sampling.greedy:
        return int(np.argmax(logits_V))
    logits_V = logits_V / sampling.temperature
    stays_V = kept(logits_V, sampling.top_k, sampling.top_p, sampling.min_p)
    weights_V = np.where(stays_V, np.exp(logits_V - logits_V.max()), 0.0)
    width = 2 ** int(np.ceil(np.log2(len(weights_V)) / 2))
    runs = [weights_V[start : start + width] for start in range(0, len(weights_V), width)]
    run = _invert(np.array([part.sum() for part in runs]), uniforms[0])
    return int(run * width + _invert(runs[run], uniforms[1]))


def _invert(masses: np.ndarray, uniform: float) -> int:
    return int(np.searchsorted(np.cumsum(masses), uniform * masses.sum(), side="right"))


def complete(
    logits: Logits,
    prompt: Sequence[int],
    row: int,
    key: jax.Array,
    sampling: SamplingParams,
    *,
    pad_id: int,
    eos_ids: Collection[int],
) -> list[int]:
    """One row to its end; its numbers are those of the key folded with the position, at its own place."""
    ids: list[int] = []
    while len(ids) < sampling.max_new_tokens and not (ids and ids[-1] in eos_ids):
        uniforms = np.asarray(jax.random.uniform(jax.random.fold_in(key, len(ids)), (row + 1, 2), np.float32))[row]
        forbidden = None if pad_id in eos_ids else pad_id
        ids.append(choose(logits([*prompt, *ids])[-1], uniforms, sampling, forbidden))
    return ids
