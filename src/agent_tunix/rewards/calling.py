"""Protocol of a reward, and the conventions that adapt users' code to it (see `conventions`)."""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from agent_tunix.rewards.conventions import CallSettings, Convention, PlainReward, adapt
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score


@runtime_checkable
class Reward(Protocol):
    """Interface of a reward of any convention."""

    @property
    def name(self) -> str:
        """Name in logs."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. A fault in a user's code is an outcome, not an exception."""

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if nothing provides a required parameter."""

    def describe(self) -> str:
        """Return a description of the reward and of its place in code, for printing and storing."""


__all__ = ["CallSettings", "Convention", "PlainReward", "Reward", "RewardRecipe", "adapt"]
