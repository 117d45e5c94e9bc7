"""Tries of uploaded functions on completions, in isolated workers, with limits on time and number."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards import Sample, Score, resolve_reward
from agent_tunix.rewards.uploaded import UploadedSource, lines_forgotten
from agent_tunix.service.scoring import Deadline, in_workers
from agent_tunix.service.settings import TryLimits
from agent_tunix.service.threads import WorkThreads
from agent_tunix.web.problems import Problem


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
    deadline = Deadline("try", limits.total_timeout_s)
    started = time.monotonic()
    with lines_forgotten(source):
        (component,) = resolve_reward(source.id, fetch=lambda _: source).components
        component.reward.check_parameters(set.intersection(*(set(row.columns) for row in rows)))
        with in_workers(component.reward, limits, 1, deadline, allow_unsandboxed) as reward:
            groups = [_samples(row, number, step) for number, row in enumerate(rows)]
            scores = iter(reward.score([sample for group in groups for sample in group]))
            by_row = [list(itertools.islice(scores, len(group))) for group in groups]
    return Tried(by_row, time.monotonic() - started)


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
