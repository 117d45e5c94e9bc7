"""Tries of uploaded functions on completions, in isolated workers, with limits on time and number."""

import itertools
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards import Outcome, Sample, Score, resolve_reward
from agent_tunix.rewards.execution import ExecutionSettings, Runner
from agent_tunix.rewards.execution.runner import IsolatedReward
from agent_tunix.rewards.uploaded import UploadedSource, lines_forgotten
from agent_tunix.service.settings import TryLimits
from agent_tunix.service.threads import WorkThreads
from agent_tunix.web.problems import Problem

# Groups that are requested before their results are read.
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class TrialRow:
    """Row of a dataset with at least one completion of its prompt; the column `answer`, if any, is the reference."""

    prompt: str
    completions: Sequence[str]
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tried:
    """Scores of a try, by row and completion, and its wall time."""

    scores: list[list[Score]]
    seconds: float


class Tries:
    """Runner of tries, a few at a time."""

    def __init__(self, limits: TryLimits, allow_unsandboxed: bool = False) -> None:
        self._limits = limits
        self._allow_unsandboxed = allow_unsandboxed
        self._pool = WorkThreads("tries", limits.at_once, limits.at_once, "tries are running, the most allowed")

    async def run(self, source: UploadedSource, rows: Sequence[TrialRow], step: int = 0) -> Tried:
        """Score completions with an uploaded function; its code runs only in workers.

        Raises:
            Problem: All places are taken.
            RewardError: The function cannot be called, for example because a row lacks a column that it needs.
        """
        return await self._pool.run(try_reward, source, rows, step, self._limits, self._allow_unsandboxed)

    def close(self) -> None:
        """Wait for running tries."""
        self._pool.close()


def try_reward(
    source: UploadedSource, rows: Sequence[TrialRow], step: int, limits: TryLimits, allow_unsandboxed: bool = False
) -> Tried:
    """Score completions with an uploaded function in its own isolated worker, and end the worker.

    Blocks until all are scored or out of time.

    Raises:
        RewardError: The function cannot be called at all.
        SandboxUnavailableError: It cannot be isolated here, and may not run otherwise.
    """
    started = time.monotonic()
    with lines_forgotten(source):
        (component,) = resolve_reward(source.id, fetch=lambda _: source).components
        component.reward.check_parameters(set.intersection(*(set(row.columns) for row in rows)))
        settings = ExecutionSettings(
            "process",
            limits.timeout_s,
            limits.memory_mb,
            num_workers=1,
            start_timeout_s=limits.total_timeout_s,
            allow_unsandboxed=allow_unsandboxed,
        )
        with Runner(component.reward, settings) as runner:
            reward: Any = runner.reward
            assert isinstance(reward, IsolatedReward)  # uploaded code is called nowhere else
            groups = [_samples(row, number, step) for number, row in enumerate(rows)]
            scores = iter(_score(reward, groups, limits.total_timeout_s))
            by_row = [list(itertools.islice(scores, len(group))) for group in groups]
    return Tried(by_row, time.monotonic() - started)


def _score(reward: IsolatedReward, groups: list[list[Sample]], seconds: float) -> list[Score]:
    """Score the samples of all groups; those without a score after `seconds` have the outcome `timeout`."""
    end = time.monotonic() + seconds
    late = f"the time limit of the whole try, {seconds:g} s, was reached before it was scored"
    parts = [list(itertools.chain(*groups))] if getattr(reward, "needs_batch", False) else groups
    futures: deque[Future[list[Score]]] = deque()
    scores: list[Score] = []
    for number, part in enumerate(parts):
        # Waiting results, with all extras of the function, use memory here, so few are requested ahead.
        ahead = number + len(futures)
        futures += (reward.begin(later) for later in parts[ahead : number + _AHEAD])
        try:
            scores += futures.popleft().result(max(0.0, end - time.monotonic()))
        except FutureTimeoutError:
            scores += [Score.failed(Outcome.TIMEOUT, late)] * len(part)
    return scores


def _samples(row: TrialRow, number: int, step: int) -> list[Sample]:
    return [
        Sample(
            completion,
            prompt=row.prompt,
            messages=({"role": "user", "content": row.prompt}, {"role": "assistant", "content": completion}),
            columns=dict(row.columns),
            step=step,
            max_steps=step,
            group_id=number,
            rollout_id=f"{step}_{number}_{place}",
            num_tokens=len(completion) // 4 + 1,
        )
        for place, completion in enumerate(row.completions)
    ]


def check_size(rows: Sequence[TrialRow], limits: TryLimits) -> None:
    """Raise Problem if there are more rows or completions than a try may have."""
    if len(rows) > limits.max_rows:
        raise Problem(400, "too_many_rows", f"a try accepts at most {limits.max_rows} rows, not {len(rows)}", "rows")
    most = max(len(row.completions) for row in rows)
    if most > limits.max_completions:
        raise Problem(
            400,
            "too_many_completions",
            f"a row of a try accepts at most {limits.max_completions} completions, not {most}",
            "rows",
        )


def cannot_be_tried(error: RewardError) -> Problem:
    """Return the problem for a function that cannot be called with the given rows, or cannot be isolated."""
    if isinstance(error, SandboxUnavailableError):
        return Problem(503, "sandbox_unavailable", str(error))
    return Problem(400, "cannot_be_tried", str(error), "rows")
