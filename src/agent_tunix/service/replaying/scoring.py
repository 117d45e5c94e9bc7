"""Scoring with an unsaved source in isolated workers, until a deadline."""

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.rewards import Outcome, Sample, Score, resolve_reward, settle_completions
from agent_tunix.rewards.execution import ExecutionSettings, Runner
from agent_tunix.rewards.execution.runner import IsolatedReward
from agent_tunix.rewards.uploaded import UploadedSource, lines_forgotten
from agent_tunix.service.settings import ReplayLimits

_LOOK_S = 0.25
_SETTLING_S = 10.0
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class CalledAs:
    """Settings by which a run calls a reward: those of `rewards`, and the arguments of the replaced component."""

    completions: str = "auto"
    reward_key: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)


class Deadline:
    """Deadline in `seconds` from now, or as soon as `ended` is set."""

    def __init__(self, seconds: float, ended: threading.Event | None = None) -> None:
        self.seconds = seconds
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


@contextlib.contextmanager
def in_workers(
    source: UploadedSource,
    name: str,
    called: CalledAs,
    sample: Sample,
    limits: ReplayLimits,
    deadline: Deadline,
    allow_unsandboxed: bool,
) -> Iterator["BoundedReward"]:
    """Yield a reward that runs an already checked source in its own workers, which end with the block.

    `name` is the name under which it scores; `sample` is one of the samples to come, whose columns it may use.

    Raises:
        RewardError: The reward cannot be called, for example because the completions lack a column that it needs.
        SandboxUnavailableError: This machine cannot isolate the reward, and it may not run without isolation.
    """
    with lines_forgotten(source):
        (component,) = resolve_reward(
            {name: {"function": source.id, "args": called.args}},
            completions=called.completions,
            reward_key=called.reward_key,
            fetch=lambda _: source,
        ).components
        reward = component.reward
        reward.check_parameters(sample.columns)
        settling_s = max(min(_SETTLING_S, deadline.left_s), _LOOK_S)
        settle_completions(
            [reward],
            sample,
            timeout_s=min(limits.timeout_s, settling_s),
            start_timeout_s=settling_s,
            memory_mb=limits.memory_mb,
            allow_unsandboxed=allow_unsandboxed,
        )
        settings = ExecutionSettings(
            "process",
            limits.timeout_s,
            limits.memory_mb,
            num_workers=limits.workers,
            start_timeout_s=limits.total_timeout_s,
            allow_unsandboxed=allow_unsandboxed,
        )
        with Runner(reward, settings) as runner:
            placed: Any = runner.reward
            assert isinstance(placed, IsolatedReward)  # uploaded code is called nowhere else
            yield BoundedReward(placed, deadline)


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
            found = self._deadline.wait(futures.popleft())
            if found is None:
                detail = (
                    f"the time limit of the whole replay, {self._deadline.seconds:g} s, was reached before it was "
                    "scored"
                )
                found = [Score.failed(Outcome.TIMEOUT, detail)] * len(part)
            scores += [Score(one.value, outcome=one.outcome, detail=one.detail, seconds=one.seconds) for one in found]
        return scores

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if nothing provides a required parameter."""
        self._placed.check_parameters(columns)

    def describe(self) -> str:
        """Return a description of the reward and where it is defined."""
        return self._placed.describe()
