"""How rewards are executed: where, and within which limits."""

import math
import os
from dataclasses import dataclass

from agent_tunix.errors import RewardError

PLACES = ("auto", "inline", "process", "ray")

_CPU_CALLS, _CPU_BASE_S = 256, 60


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """Where rewards run and what a call may use.

    Attributes:
        execution: `inline`: in this process; `process`: in worker processes; `ray`: in worker processes of a Ray
            cluster; `auto`: built-ins inline and users' code in worker processes.
        timeout_s: Wall time a call may take for each completion that it scores.
        memory_mb: What a worker may allocate beyond what it holds once its rewards are loaded.
        num_workers: Worker processes; None: one for each core that this process may use.
        max_concurrency: Calls of an async reward that run at once.
        recycle_after: A worker is replaced after so many calls.
        start_timeout_s: Wall time that loading a reward's file in a worker may take.
        sandboxed: Whether workers run code of others: each gives up its rights first, and `memory_mb` then bounds what
            loading the file takes too.
        allow_unsandboxed: Whether uploaded code may run all the same where it cannot be isolated.
        disk_mb: What files of a worker that runs code of others may take together.
    """

    execution: str = "auto"
    timeout_s: float = 10.0
    memory_mb: int = 2048
    num_workers: int | None = None
    max_concurrency: int = 64
    recycle_after: int = 10_000
    start_timeout_s: float = 60.0
    sandboxed: bool = False
    allow_unsandboxed: bool = False
    disk_mb: int = 64

    def __post_init__(self) -> None:
        if self.execution not in PLACES:
            raise RewardError(
                f"rewards.execution must be one of {', '.join(PLACES)}, not {self.execution!r}",
                code="unknown_execution",
            )
        for name in ("timeout_s", "memory_mb", "max_concurrency", "recycle_after", "start_timeout_s", "disk_mb"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise RewardError(f"rewards.{name} must be above 0 and finite, not {value}", code="invalid_limit")
        if self.num_workers is not None and self.num_workers < 1:
            raise RewardError(
                f"rewards.num_workers must be at least 1, not {self.num_workers}; null: one for each core",
                code="invalid_limit",
            )

    @property
    def workers(self) -> int:
        """How many worker processes that makes here."""
        return self.num_workers or _usable_cores()

    @property
    def cpu_s(self) -> int:
        """Processor time at which a worker that runs code of others is ended; between calls it is replaced before."""
        return math.ceil(_CPU_CALLS * self.timeout_s) + _CPU_BASE_S


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
