"""The objective, as pure functions of per-token log-probabilities.

    batch         inputs of every loss: log-probabilities, advantages, mask, weights
    grpo          ratios clipped token by token: GRPO, Dr. GRPO, DAPO
    gspo          ratios clipped sequence by sequence: GSPO, GSPO-token
    cispo         the policy gradient with bounded importance weights: CISPO, ScaleRL
    sapo          a smooth gate in place of the clip
    gmpo          the geometric mean of clipped token ratios
    dppo          tokens masked by the divergence of the policies: DPPO
    reinforce     the plain policy gradient: RLOO, MaxRL
    kl            estimators of the divergence from the reference policy
    distillation  the divergence from a teacher
    terms         entropy bonus, positive examples, observations, and masks of tokens and completions
    sampler_mismatch   the disagreement between sampling and training, and its corrections
    aggregation   from the losses of tokens to one number
    objective     the whole objective: `policy_objective`

These modules do not depend on a model, a configuration or Tunix. An engine that computes log-probabilities in
another way, in chunks of the vocabulary or of the batch, can call the same functions.

Axes: B completions, T tokens of each.
"""

from agent_tunix.grpo.losses.aggregation import AGGREGATIONS, aggregate, completion_weights
from agent_tunix.grpo.losses.batch import LossBatch, ObjectiveSettings, TokenLosses, log_ratios, token_ratios
from agent_tunix.grpo.losses.kl import KL_ESTIMATORS
from agent_tunix.grpo.losses.objective import LOSSES, policy_objective

__all__ = [
    "AGGREGATIONS",
    "KL_ESTIMATORS",
    "LOSSES",
    "LossBatch",
    "ObjectiveSettings",
    "TokenLosses",
    "aggregate",
    "completion_weights",
    "log_ratios",
    "policy_objective",
    "token_ratios",
]
