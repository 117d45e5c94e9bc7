"""Division of a batch into calls and of calls among workers, and the interface of executors.

A *call* is the smallest unit that a timeout or a death can be blamed on: one completion; one group, if a reward takes
several completions at once; or the whole batch, if it declares that it needs that. The limit of a call is `timeout_s`
times its number of completions. The division depends only on the batch, so scores do not depend on the number of
workers.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Sample, Score

Call = tuple[int, ...]

LARGEST_CHUNK = 64
CHUNKS_A_WORKER = 4


def divide_into_calls(samples: Sequence[Sample], reward: Any) -> list[Call]:
    """Return the positions of each call's completions, as the reward's `needs_batch` and `needs_group` require."""
    if samples and getattr(reward, "needs_batch", False):
        return [tuple(range(len(samples)))]
    if not getattr(reward, "needs_group", False):
        return [(position,) for position in range(len(samples))]
    groups: dict[tuple[int, int], list[int]] = {}
    for position, sample in enumerate(samples):
        groups.setdefault((sample.step, sample.group_id), []).append(position)
    return [tuple(positions) for positions in groups.values()]


def divide_into_chunks(calls: Sequence[Call], num_workers: int) -> list[list[Call]]:
    """Return chunks of calls for workers to make in sequence, small enough that workers end at about the same time."""
    size = min(LARGEST_CHUNK, max(1, math.ceil(len(calls) / (num_workers * CHUNKS_A_WORKER))))
    return [list(calls[start : start + size]) for start in range(0, len(calls), size)]


def divide_concurrency(calls: Sequence[Call], num_workers: int, limit: int) -> list[tuple[list[Call], int]]:
    """Return chunks of calls for workers to make concurrently, each with its share of the limit.

    Chunks are as large as their shares, so together they take no more rounds than one worker with the whole limit.
    """
    num_chunks = min(num_workers, limit, len(calls))
    divided = []
    start = 0
    taken = 0
    for number in range(num_chunks):
        share = limit // num_chunks + (number < limit % num_chunks)
        taken += share
        end = len(calls) * taken // limit
        if end > start:
            divided.append((list(calls[start:end]), share))
        start = end
    return divided


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
