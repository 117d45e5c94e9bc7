"""Interface of executors, which run calls in this process's workers or elsewhere."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from agent_tunix.rewards.execution.calls import Call
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score


@dataclass(frozen=True, slots=True)
class Job:
    """A batch for one reward to score."""

    recipe: RewardRecipe
    samples: Sequence[Sample]
    calls: Sequence[Call]  # positions of the completions of each call; every position is in exactly one call
    is_async: bool = False  # True if calls run concurrently in an event loop


class Executor(Protocol):
    """Executor of jobs in isolation. Every completion gets a score with an outcome, whatever its call does."""

    def prepare(self, recipe: RewardRecipe) -> None:
        """Load a reward ahead of its first job, without waiting."""

    def submit(self, job: Job) -> "Future[list[Score]]":
        """Begin a job. The future has a score for each sample, in order."""

    def close(self) -> None:
        """End all processes and threads, release all descriptors, and cancel unfinished jobs."""
