"""GRPO fine-tuning on JAX and Tunix, built around reward functions.

Importing this package loads neither JAX nor Hydra.
"""

from agent_tunix import early_interrupt as _early_interrupt  # noqa: F401  (handles Ctrl-C during these imports)
from agent_tunix.own_functions import register_policy_loss
from agent_tunix.rewards import (
    Outcome,
    Sample,
    Score,
    get_reward_function,
    list_reward_functions,
    normalize_reward,
    register_advantage_estimator,
    register_reward_function,
)

__version__ = "0.2.0"

__all__ = [
    "Outcome",
    "Sample",
    "Score",
    "__version__",
    "get_reward_function",
    "list_reward_functions",
    "normalize_reward",
    "register_advantage_estimator",
    "register_policy_loss",
    "register_reward_function",
]
