"""GRPO fine-tuning on JAX and Tunix, built around reward functions.

Importing this package loads neither JAX nor Hydra.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
from agent_tunix.version import __version__

if TYPE_CHECKING:
    from agent_tunix.api import Callback, Run, TrainingState, open_run, prefer, sft, train

__all__ = [
    "Callback",
    "Outcome",
    "Run",
    "Sample",
    "Score",
    "TrainingState",
    "__version__",
    "get_reward_function",
    "list_reward_functions",
    "normalize_reward",
    "open_run",
    "prefer",
    "register_advantage_estimator",
    "register_policy_loss",
    "register_reward_function",
    "sft",
    "train",
]


def __getattr__(name: str) -> Any:
    """Return a name of `agent_tunix.api`, which is imported at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agent_tunix.api"), name)
