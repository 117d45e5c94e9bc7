"""Scoring with uploaded code in isolated workers, until a deadline."""

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.execution import ExecutionSettings, Runner
from agent_tunix.rewards.execution.runner import IsolatedReward
from agent_tunix.rewards.sample import Reward
from agent_tunix.service.settings import ReplayLimits, TryLimits

_LOOK_S = 0.25
_AHEAD = 8


class Deadline:
    """Deadline of `what`, in `seconds` from now, or as soon as `ended` is set."""

    def __init__(self, what: str, seconds: float, ended: threading.Event | None = None) -> None:
        self.reason = f"the time limit of the whole {what}, {seconds:g} s, was reached before it was scored"
        self._at = time.monotonic() + seconds
        self._ended = ended or threading.Event()

    @property
    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return 0.0 if self._ended.is_set() else max(0.0, self._at - time.monotonic())

    def wait(self, future: "Future[list[Score]]") -> list[Score] | None:
        """Return a future's result; None if it is not ready in time."""
        while True:
            left_s = self.left_s
            try:
                return future.result(min(left_s, _LOOK_S))
            except FutureTimeoutError:
                if not left_s:
                    return None


class BoundedReward:
    """Reward in workers whose results count only before a deadline."""

    def __init__(self, placed: IsolatedReward, deadline: Deadline) -> None:
        self._placed = placed
        self._deadline = deadline
        self.needs_batch = bool(getattr(placed, "needs_batch", False))

    @property
    def name(self) -> str:
        """The name under which it scores."""
        return self._placed.name

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order; samples without a score at the deadline have the outcome `timeout`."""
        groups = [list(group) for _, group in itertools.groupby(samples, key=lambda sample: sample.group_id)]
        parts = [list(samples)] if self.needs_batch else groups
        futures: deque[Future[list[Score]]] = deque()
        scores: list[Score] = []
        for number, part in enumerate(parts):
            # Waiting results, with all extras of the function, use memory here, so few are requested ahead.
            ahead = number + len(futures)
            futures += (self._placed.begin(later) for later in parts[ahead : number + _AHEAD])
            scores += self._deadline.wait(futures.popleft()) or [
                Score.failed(Outcome.TIMEOUT, self._deadline.reason)
            ] * len(part)
        return scores

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if nothing provides a required parameter."""
        self._placed.check_parameters(columns)

    def describe(self) -> str:
        """Return a description of the reward and where it is defined."""
        return self._placed.describe()


@contextlib.contextmanager
def in_workers(
    reward: Reward, limits: TryLimits | ReplayLimits, num_workers: int, deadline: Deadline, allow_unsandboxed: bool
) -> Iterator[BoundedReward]:
    """Yield an uploaded reward in its own isolated workers, which end with the block.

    Raises:
        SandboxUnavailableError: It cannot be isolated here, and may not run otherwise.
    """
    settings = ExecutionSettings(
        "process",
        limits.timeout_s,
        limits.memory_mb,
        num_workers=num_workers,
        start_timeout_s=limits.total_timeout_s,
        allow_unsandboxed=allow_unsandboxed,
    )
    with Runner(reward, settings) as runner:
        placed: Any = runner.reward
        assert isinstance(placed, IsolatedReward)  # uploaded code is called nowhere else
        yield BoundedReward(placed, deadline)
