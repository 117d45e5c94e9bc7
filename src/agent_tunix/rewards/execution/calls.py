"""Which completions a call takes together, and which calls a worker is given at once.

A *call* is the least that a time limit or a death can be blamed on: one completion, or one group where a reward takes
several at once, or the whole batch where it declares that it needs that. Its limit is `timeout_s` for each of its
completions. The division depends on the batch alone, never on how many workers there are, so neither do the scores.
"""

import math
from collections.abc import Sequence
from typing import Any

from agent_tunix.rewards.sample import Sample

Call = tuple[int, ...]

LARGEST_CHUNK = 64
CHUNKS_A_WORKER = 4


def divide_into_calls(samples: Sequence[Sample], reward: Any) -> list[Call]:
    """Positions of the completions of each call, in the order of their first completions.

    Args:
        samples: The batch.
        reward: What is called; its `needs_batch` and `needs_group`, where it has them, say what a call takes.
    """
    if samples and getattr(reward, "needs_batch", False):
        return [tuple(range(len(samples)))]
    if not getattr(reward, "needs_group", False):
        return [(position,) for position in range(len(samples))]
    groups: dict[tuple[int, int], list[int]] = {}
    for position, sample in enumerate(samples):
        groups.setdefault((sample.step, sample.group_id), []).append(position)
    return [tuple(positions) for positions in groups.values()]


def divide_into_chunks(calls: Sequence[Call], num_workers: int) -> list[list[Call]]:
    """Calls that one worker makes one after the other: small enough that all workers end at about the same time."""
    size = min(LARGEST_CHUNK, max(1, math.ceil(len(calls) / (num_workers * CHUNKS_A_WORKER))))
    return [list(calls[start : start + size]) for start in range(0, len(calls), size)]


def divide_concurrency(calls: Sequence[Call], num_workers: int, limit: int) -> list[tuple[list[Call], int]]:
    """Calls that each of several workers makes at once, with its share of the limit.

    The chunks are as large as the shares, so that together they take no more rounds than one worker with all of the
    limit would.
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
