"""Aggregation of the losses of tokens to one number.

Every mode is a weighted sum, loss = Σ_i w_i Σ_t m_it l_it, in which w_i depends only on lengths. |o_i| is the number of
tokens of completion i that take part. N is the number of completions in the batch, N' of completions with such a token,
and P' of prompts with such a token. g(i) are the completions of the prompt of i. L is the length of the longest
completion that can be sampled:

    sequence-mean-token-mean        w_i = 1 / (N' |o_i|)     GRPO, equation 3 of https://arxiv.org/abs/2402.03300
    token-mean                      w_i = 1 / Σ_j |o_j|      DAPO, equation 8 of https://arxiv.org/abs/2503.14476
    prompt-mean-token-mean          w_i = 1 / (P' Σ_j∈g(i) |o_j|)     ScaleRL, https://arxiv.org/abs/2510.13786
    sequence-mean-token-sum         w_i = 1 / N'             RLOO, whose action is the whole completion
    sequence-mean-token-sum-norm    w_i = 1 / (N L)          Dr. GRPO, section 3.2 of https://arxiv.org/abs/2503.20783
    length-weighted-token-sum       w_i = |o_i|^−α / (L Σ_j |o_j|^−α)     VL Norm, https://arxiv.org/abs/2509.07558

An episode of an agent may be several rows of tokens. They count as one completion: |o_i| is the number of tokens of
all its rows, Σ_t goes over them, and each row has the weight w_i. An episode therefore counts once, whatever its number
of rows.

The last mode assumes that the variance of a completion's gradient grows with its length. With α = 1 it has the least
variance among the unbiased combinations of gradients; with α = 0 each token counts the same. The paper also uses 0.75,
which lets long completions count more. Its constant M is L.

The weights are computed over the whole batch and passed to each micro-batch. The losses and gradients of micro-batches
therefore sum to those of the batch, even if their lengths differ: the division into micro-batches changes only what is
computed at once.

Departure: N' and P' leave out completions and prompts without a token that takes part, such as masked truncated
completions. `sequence-mean-token-sum-norm` counts them, because its divisor is meant to be constant.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike, NDArray

AGGREGATIONS = (
    "sequence-mean-token-mean",
    "token-mean",
    "prompt-mean-token-mean",
    "sequence-mean-token-sum",
    "sequence-mean-token-sum-norm",
    "length-weighted-token-sum",
)


def completion_weights(
    lengths_N: ArrayLike, mode: str, max_length: int, num_generations: int = 1, length_exponent: float = 1.0
) -> NDArray[np.float64]:
    """Return [N] w_i, the weight of each token of a completion.

    Args:
        lengths_N: Number of tokens of each completion of the batch that take part, from 0.
        mode: One of `AGGREGATIONS`.
        max_length: L, in tokens.
        num_generations: Completions of each prompt, which lie side by side.
        length_exponent: α of `length-weighted-token-sum`.

    Returns:
        Finite weights; 0 for a completion without a token that takes part.

    Raises:
        ValueError: The mode does not exist.
    """
    lengths_N = np.asarray(lengths_N, dtype=np.float64)
    present_N = (lengths_N > 0).astype(np.float64)
    num_present = max(present_N.sum(), 1.0)
    divisors: float | NDArray[np.float64]
    if mode == "sequence-mean-token-mean":
        divisors = num_present * np.maximum(lengths_N, 1.0)
    elif mode == "token-mean":
        divisors = max(lengths_N.sum(), 1.0)
    elif mode == "prompt-mean-token-mean":
        of_prompts = lengths_N.reshape(-1, num_generations).sum(axis=1)
        divisors = max((of_prompts > 0).sum(), 1) * np.repeat(np.maximum(of_prompts, 1.0), num_generations)
    elif mode == "sequence-mean-token-sum":
        divisors = num_present
    elif mode == "sequence-mean-token-sum-norm":
        divisors = lengths_N.size * max_length
    elif mode == "length-weighted-token-sum":
        powers = np.maximum(lengths_N, 1.0) ** length_exponent
        divisors = max_length * powers * ((present_N / powers).sum() or 1.0)
    else:
        raise ValueError(f"grpo.loss_agg_mode must be one of {', '.join(AGGREGATIONS)}, not {mode!r}")
    return np.asarray(present_N / divisors)


def aggregate(values: Float[Array, "B T"], mask: Bool[Array, "B T"], weights: Float[Array, " B"]) -> Float[Array, ""]:
    """Return Σ_i w_i Σ_t m_it v_it over the given completions."""
    return (weights * jnp.where(mask, values, 0.0).sum(axis=1)).sum()
