"""GRPO fine-tuning on JAX and Tunix, built around reward functions.

Importing this package loads neither JAX nor Hydra.
"""

from agent_tunix.rewards import (
    Outcome,
    Sample,
    Score,
    get_reward_function,
    list_reward_functions,
    normalize_reward,
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
    "register_reward_function",
]
