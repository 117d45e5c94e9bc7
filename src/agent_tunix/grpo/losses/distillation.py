"""On-policy distillation: the divergence KL(π ‖ π_T) from a teacher on completions that the policy sampled.

The objective is the reverse KL of https://arxiv.org/abs/2306.13649 (GKD), token by token: the tokens of a completion
are given, and no gradient flows through their sampling. There are two forms. The first uses only the sampled token,

    r sg[log π(token) − log π_T(token)],    r = π / π_old

which is the policy gradient with the advantage log π_T − log π of each token. Its expected gradient over samples of
π_old is that of the divergence. The second uses the teacher's k likeliest words,

    Σ_v π(v) log(π(v) / π_T(v)),            v: these words, and all others together as one

and is differentiated directly, which has less variance. The sum is at most the divergence, and equal to it if k is the
number of words.

Departures: the distributions are those at the sampling temperature. The probability of all other words together is at
least 1e-6, so that the gradient is finite if the teacher gives them none.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from agent_tunix.grpo.losses.batch import LossBatch, token_ratios

_LEAST_REST = 1e-6


def teacher_divergence(batch: LossBatch) -> Float[Array, "B T"]:
    """Return the divergence of each token in nats, with the gradient of the divergence; 0 for completions not taught.

    The sampled form is signed.
    """
    divergences = _divergences(batch)
    return divergences if batch.taught is None else jnp.where(batch.taught[:, None], divergences, 0.0)


def _divergences(batch: LossBatch) -> Float[Array, "B T"]:
    assert batch.teacher_logps is not None
    if batch.top_logps is None:
        return token_ratios(batch) * jax.lax.stop_gradient(batch.logps - batch.teacher_logps)
    shares = jnp.exp(batch.top_logps)
    rest, rest_of_teacher = _rest(shares), _rest(jnp.exp(batch.teacher_logps))
    of_top = (shares * (batch.top_logps - batch.teacher_logps)).sum(axis=-1)
    return of_top + rest * jnp.log(rest / rest_of_teacher)


def _rest(shares: Float[Array, "B T k"]) -> Float[Array, "B T"]:
    return jnp.maximum(1.0 - shares.sum(axis=-1), _LEAST_REST)
