"""What runs calls, wherever it runs them."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from agent_tunix.rewards.execution.calls import Call
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score


@dataclass(frozen=True, slots=True)
class Job:
    """A batch that one reward is to score.

    Attributes:
        recipe: The reward.
        samples: The completions.
        calls: Which of them go into a call together; every position in exactly one call.
        is_async: Whether calls run concurrently in an event loop.
    """

    recipe: RewardRecipe
    samples: Sequence[Sample]
    calls: Sequence[Call]
    is_async: bool = False


class Executor(Protocol):
    """Runs jobs in isolation. Whatever a call does, its completions get a score with an outcome."""

    def prepare(self, recipe: RewardRecipe) -> None:
        """Load a reward ahead of its first job, without waiting for it."""

    def submit(self, job: Job) -> "Future[list[Score]]":
        """Begin a job; the future has a score for each sample, in order."""

    def close(self) -> None:
        """End every process and thread, and give up every descriptor; jobs not yet done are cancelled."""
