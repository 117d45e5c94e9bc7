"""GRPO: importance ratios clipped token by token.

    J = E[ 1/G Σ_i 1/|o_i| Σ_t ( min(r_it A_i, clip(r_it, 1 − ε, 1 + ε) A_i) − β D_KL ) ]
    r_it = π(o_it) / π_old(o_it)

This is equation 3 of https://arxiv.org/abs/2402.03300. Two variants share these token losses. Dr. GRPO
(https://arxiv.org/abs/2503.20783, section 3.2) does not divide advantages by the deviation. It sums the losses and
divides by a constant. DAPO (https://arxiv.org/abs/2503.14476, equation 8) has another upper bound and averages over all
tokens. The differences are in `aggregation` and in `rewards.advantages`.

Departure: log-ratios are limited to ±20.
"""

from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, token_ratios
from agent_tunix.grpo.losses.clipping import clipped_surrogate


def grpo(batch: LossBatch, settings: ObjectiveSettings) -> TokenLosses:
    """Return the token losses of GRPO."""
    return clipped_surrogate(token_ratios(batch), batch, settings)
