"""Concurrent async calls in an event loop, under a limit, each with its own timeout."""

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Outcome, Sample, Score

_SLICES = 8


class AsyncReward(Protocol):
    """Interface of a reward whose calls can run concurrently."""

    async def score_async(self, samples: Sequence[Sample], limit: int) -> list[Score]:
        """Score each sample, in order, at most `limit` at the same time."""


async def run_calls(
    reward: AsyncReward,
    calls: Sequence[list[Sample]],
    limit: int,
    timeout_s: float,
    ended: Callable[[int, list[Score]], None],
    began: Callable[[int], None] = lambda _: None,
) -> set["asyncio.Task[Any]"]:
    """Make at most `limit` calls at the same time, and report the scores of each by its number.

    A call that takes longer than `timeout_s` per completion is cancelled.

    Returns:
        Tasks that still run although they were cancelled.
    """
    strays: set[asyncio.Task[Any]] = set()
    numbers = iter(range(len(calls)))

    async def take_calls() -> None:
        for number in numbers:
            samples = calls[number]
            allowed_s = timeout_s * len(samples)
            started = time.perf_counter()
            task = asyncio.ensure_future(_one_call(reward, samples, functools.partial(began, number)))
            if await _ends_within(task, allowed_s):
                ended(number, _scores_of(task, samples))
                continue
            task.cancel()
            strays.add(task)
            detail = f"took longer than {allowed_s:g} s (rewards.timeout_s)"
            failed = Score.failed(Outcome.TIMEOUT, detail, time.perf_counter() - started)
            ended(number, [failed] * len(samples))

    await asyncio.gather(*(take_calls() for _ in range(min(limit, len(calls)))))
    if strays:
        await asyncio.wait(strays, timeout=min(1.0, timeout_s))
    return {task for task in strays if not task.done()}


async def _ends_within(task: "asyncio.Task[Any]", allowed_s: float) -> bool:
    """Return True if a task ends in time. Time in which another task blocks the loop does not count."""
    for _ in range(_SLICES):
        done, _ = await asyncio.wait({task}, timeout=allowed_s / _SLICES)
        if done:
            return True
    return False


async def _one_call(reward: AsyncReward, samples: list[Sample], begin: Callable[[], None]) -> list[Score]:
    begin()
    try:
        return check_length(await reward.score_async(samples, len(samples)), samples)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # SystemExit or KeyboardInterrupt in a task would end the loop
        return failed_scores(error, samples)


def _scores_of(task: "asyncio.Task[list[Score]]", samples: list[Sample]) -> list[Score]:
    if task.cancelled():
        return [Score.failed(Outcome.ERROR, "the reward cancelled itself (asyncio.CancelledError)")] * len(samples)
    return task.result()


def check_length(scores: list[Score], samples: Sequence[Sample]) -> list[Score]:
    """Return the scores if there is one for each sample; otherwise return errors that state the numbers."""
    if len(scores) == len(samples):
        return scores
    detail = f"gave {len(scores)} scores for {len(samples)} completions"
    return [Score.failed(Outcome.ERROR, detail)] * len(samples)


def failed_scores(error: BaseException, samples: Sequence[Sample]) -> list[Score]:
    """Return errors for all samples of a call that raised an exception."""
    return [Score.failed(Outcome.ERROR, describe_fault(error))] * len(samples)
