"""Rewards: scores of completions, and the reasons for them.

The package is plain Python and NumPy. Importing it loads neither JAX nor Hydra.
"""

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.advantages import compute_advantages, compute_group_advantages, register_advantage_estimator
from agent_tunix.rewards.answers import extract_answer, verifiers  # noqa: F401  # verifiers run math-verify
from agent_tunix.rewards.conventions import BaseReward, RewardConfig
from agent_tunix.rewards.conventions.for_trl import to_trl
from agent_tunix.rewards.execution.probe import settle_completions
from agent_tunix.rewards.fingerprint import Fingerprint, fingerprint
from agent_tunix.rewards.mixture import Component, Mixture
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.registry import (
    get_builtin,
    get_reward_function,
    list_reward_functions,
    register_reward_function,
)
from agent_tunix.rewards.resolve import resolve_reward
from agent_tunix.rewards.sample import EpisodeSummary, Outcome, Sample, Score, Term
from agent_tunix.rewards.statistics import RewardAnalysis, summarise
from agent_tunix.rewards.transforms import normalize_reward

__all__ = [
    "BadReferenceError",
    "BaseReward",
    "Component",
    "EpisodeSummary",
    "Fingerprint",
    "Mixture",
    "Outcome",
    "RewardAnalysis",
    "RewardConfig",
    "RewardRecipe",
    "Sample",
    "Score",
    "Term",
    "compute_advantages",
    "compute_group_advantages",
    "extract_answer",
    "fingerprint",
    "get_builtin",
    "get_reward_function",
    "list_reward_functions",
    "normalize_reward",
    "register_advantage_estimator",
    "register_reward_function",
    "resolve_reward",
    "settle_completions",
    "summarise",
    "to_trl",
]
