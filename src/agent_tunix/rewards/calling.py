"""What the rest of the package knows of a reward, and the conventions that users write rewards in.

Every convention is an adapter onto `Reward`; see `conventions`.
"""

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

from agent_tunix.rewards.conventions import CallSettings, Convention, PlainReward, adapt
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score


@runtime_checkable
class Reward(Protocol):
    """What the rest of the package knows of a reward, whatever convention it was written in."""

    @property
    def name(self) -> str:
        """The name under which it is logged."""

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. A fault in a user's code is an outcome, not an exception."""

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if a required parameter is provided by nothing."""

    def describe(self) -> str:
        """What it is and where it is written, for printing and storing."""


__all__ = ["CallSettings", "Convention", "PlainReward", "Reward", "RewardRecipe", "adapt"]
