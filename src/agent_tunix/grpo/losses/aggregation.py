"""How the losses of tokens become one number.

Every mode is a weighted sum, loss = Σ_i w_i Σ_t m_it l_it, in which w_i depends on lengths alone. With |o_i| the tokens
of completion i that take part, N completions in the batch, N' of them with such a token, and L the longest completion
that could be sampled,

    sequence-mean-token-mean        w_i = 1 / (N' |o_i|)     GRPO, equation 3 of https://arxiv.org/abs/2402.03300
    token-mean                      w_i = 1 / Σ_j |o_j|      DAPO, equation 8 of https://arxiv.org/abs/2503.14476
    sequence-mean-token-sum         w_i = 1 / N'             RLOO, whose action is the whole completion
    sequence-mean-token-sum-norm    w_i = 1 / (N L)          Dr. GRPO, section 3.2 of https://arxiv.org/abs/2503.20783

The weights are taken over the whole batch and handed to each micro-batch, so that micro-batches only say what is
computed at once: their losses and gradients sum to those of the batch, however their lengths differ.

Departure: a completion of which no token takes part, as where truncated ones are masked, is not counted among the N'
whose mean is taken. In the last mode it is: its divisor is meant to be a constant.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike, NDArray

AGGREGATIONS = (
    "sequence-mean-token-mean",
    "token-mean",
    "sequence-mean-token-sum",
    "sequence-mean-token-sum-norm",
)


def completion_weights(lengths_N: ArrayLike, mode: str, max_length: int) -> NDArray[np.float64]:
    """[N] w_i: what each token of a completion counts for.

    Args:
        lengths_N: Tokens of each completion of the batch that take part, from 0.
        mode: One of `AGGREGATIONS`.
        max_length: L, in tokens.

    Returns:
        Finite weights; 0 where no token takes part.

    Raises:
        ValueError: There is no such mode.
    """
    lengths_N = np.asarray(lengths_N, dtype=np.float64)
    present_N = (lengths_N > 0).astype(np.float64)
    num_present = max(present_N.sum(), 1.0)
    divisors: float | NDArray[np.float64]
    if mode == "sequence-mean-token-mean":
        divisors = num_present * np.maximum(lengths_N, 1.0)
    elif mode == "token-mean":
        divisors = max(lengths_N.sum(), 1.0)
    elif mode == "sequence-mean-token-sum":
        divisors = num_present
    elif mode == "sequence-mean-token-sum-norm":
        divisors = lengths_N.size * max_length
    else:
        raise ValueError(f"grpo.loss_agg_mode must be one of {', '.join(AGGREGATIONS)}, not {mode!r}")
    return np.asarray(present_N / divisors)


def aggregate(values: Float[Array, "B T"], mask: Bool[Array, "B T"], weights: Float[Array, " B"]) -> Float[Array, ""]:
    """Σ_i w_i Σ_t m_it v_it over the completions at hand."""
    return (weights * jnp.where(mask, values, 0.0).sum(axis=1)).sum()
