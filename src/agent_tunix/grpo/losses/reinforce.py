"""REINFORCE, which is RLOO if combined with the leave-one-out baseline (https://arxiv.org/abs/2402.14740).

    J = E[ 1/k Σ_i (R_i − 1/(k−1) Σ_{j≠i} R_j) Σ_t log π(o_it) ]

The baseline is the scaling `leave_one_out` of `rewards.advantages`. There is neither a ratio nor a clip, so the
gradient is valid for only one update on freshly sampled completions.

Departure: the paper puts β times the log-ratio to the reference policy into the reward. Here the KL penalty is a term
of the loss, as in GRPO, so that the logged rewards are those that train.
"""

import jax.numpy as jnp

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, unclipped


def reinforce(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:  # as all losses
    """Return the token losses −A log π."""
    return unclipped(-batch.advantages_of_tokens * batch.logps, jnp.ones_like(batch.logps))
