"""Interface of environments of verifiers, in both of their forms."""

import abc
from collections.abc import Mapping
from typing import Any

from agent_tunix.rewards.sample import Score

# Rows for training, and those for evaluation, which may be none.
Rows = tuple[list[dict[str, Any]], list[dict[str, Any]]]


class InstalledEnvironment(abc.ABC):
    """An environment of verifiers, loaded in this process."""

    @abc.abstractmethod
    def rows(self, limit: int) -> Rows:
        """Return the rows, of an endless environment as many as `limit`."""

    @abc.abstractmethod
    async def open(self) -> None:
        """Start what all rollouts share, on their event loop."""

    @abc.abstractmethod
    async def rollout(self, row: Mapping[str, Any], base_url: str, key: str) -> Score:
        """Run and score one rollout, of which several may run at once on one event loop.

        Args:
            row: A row of `rows`.
            base_url: Address of the policy's server.
            key: Key that attributes the calls to this rollout.

        Returns:
            The environment's reward, with the score of each function of its rubric as a component.

        Raises:
            EnvironmentFailedError: The environment or its rubric failed.
        """
