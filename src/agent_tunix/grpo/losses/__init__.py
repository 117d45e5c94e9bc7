"""What is minimised, as pure functions of per-token log-probabilities.

    batch         what every loss reads: log-probabilities, advantages, mask, weights
    grpo          clipped ratios token by token: GRPO, Dr. GRPO, DAPO
    gspo          clipped ratios sequence by sequence: GSPO, GSPO-token
    reinforce     the plain policy gradient: RLOO
    kl            estimators of the divergence from the reference policy
    aggregation   how the losses of tokens become one number
    objective     all of it together: `policy_objective`

Nothing here knows a model, Tunix or a configuration: an engine that computes log-probabilities in its own way, in
chunks of the vocabulary or of the batch, calls the same functions.

Axes: B completions, T tokens of each.
"""

from agent_tunix.grpo.losses.aggregation import AGGREGATIONS, aggregate, completion_weights
from agent_tunix.grpo.losses.batch import LossBatch
from agent_tunix.grpo.losses.kl import KL_ESTIMATORS
from agent_tunix.grpo.losses.objective import LOSSES, ObjectiveSettings, policy_objective

__all__ = [
    "AGGREGATIONS",
    "KL_ESTIMATORS",
    "LOSSES",
    "LossBatch",
    "ObjectiveSettings",
    "aggregate",
    "completion_weights",
    "policy_objective",
]
