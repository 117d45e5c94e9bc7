"""The reward mixture as Tunix's reward manager, the group advantage as its estimator, and our loss as its loss.

All are registered with Tunix under the name `agent_tunix`. Tunix's own manager turns NaN into 0, broadcasts a scalar
over the batch, hands configuration fields to rewards that name them, and does not know the step; ours gives each
completion a score with an outcome, and an unscored one the total NaN, which the estimator leaves out of its group.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tunix.rl import function_registry, reward_manager

from agent_tunix.rewards import Mixture, Sample, Score, compute_group_advantages
from agent_tunix.training.policy_loss import policy_loss
from agent_tunix.training.processes import Processes
from agent_tunix.training.processes.sharing import score_together

NAME = "agent_tunix"


class MixtureManager(reward_manager.AbstractRewardManager):  # type: ignore[misc]
    """Scores a batch of completions with one mixture."""

    def __init__(self, reward_fns: Mixture, algo_config: Any, **_: Any) -> None:
        """Take the mixture where Tunix passes reward functions."""
        self.mixture = reward_fns
        self.algo_config = algo_config
        self._processes = Processes()
        self._divided = True

    def share(self, processes: Processes, *, divided: bool) -> None:
        """Have the processes of a run score together, each a share, or else the first one all."""
        self._processes = processes
        self._divided = divided

    def __call__(
        self, prompts: Sequence[str], completions: Sequence[str], *, samples: Sequence[Sample], **_: Any
    ) -> dict[str, Any]:
        """Score the samples.

        Args:
            prompts: Ignored; a sample knows its prompt.
            completions: The responses, one for each sample.
            samples: What the rewards are given, in the same order.

        Returns:
            `rewards`: [N] totals in float64, NaN where a completion is unscored, or 0 where it failed and
            `rewards.on_failure` is zero; `scores`: the N scores; `log_metrics`: none, the run logs from the scores.
        """
        if len(completions) != len(samples):
            raise ValueError(f"{len(completions)} completions but {len(samples)} samples")
        scores = score_together(self.mixture.score, samples, self._processes, divided=self._divided)
        return {"rewards": self.mixture.totals(scores), "scores": scores, "log_metrics": {}}


def estimate_advantages(rewards: np.ndarray, num_generations: int) -> np.ndarray:
    """[N] group advantages in float32; 0 for unscored completions.

    What Tunix's own loop would call, which knows the totals alone; ours calls `estimate_from_scores`.
    """
    return compute_group_advantages(rewards, num_generations).astype(np.float32)


def estimate_from_scores(mixture: Mixture, scores: Sequence[Score], num_generations: int, scaling: str) -> np.ndarray:
    """[N] advantages in float32, scaled as `grpo.advantage_scaling` says; 0 for unscored completions."""
    return mixture.advantages(scores, num_generations, scaling).astype(np.float32)


def register_with_tunix() -> None:
    """Make them known to Tunix; doing it twice changes nothing."""
    registry = function_registry.default_registry
    functions: dict[str, Any] = {
        "reward_manager": MixtureManager,
        "advantage_estimator": estimate_advantages,
        "policy_loss_fn": policy_loss,
    }
    for category, function in functions.items():
        if NAME not in registry.list_functions(category):
            registry.register(category, NAME)(function)
