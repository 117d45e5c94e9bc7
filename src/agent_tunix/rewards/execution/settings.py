"""Settings of reward execution: place and limits."""

import math
import os
from dataclasses import dataclass

from agent_tunix.errors import RewardError
from agent_tunix.execution.workers.limits import Isolation, WorkerLimits

PLACES = ("auto", "inline", "process", "ray")

_CPU_CALLS, _CPU_BASE_S = 256, 60


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """Place and limits of reward calls."""

    # `inline`: in this process; `process`: in worker processes; `ray`: in worker processes of a Ray cluster; `auto`:
    # built-ins inline (but for those that may take forever) and users' code in worker processes.
    execution: str = "auto"
    timeout_s: float = 10.0  # wall time that a call may take per completion
    memory_mb: int = 2048  # memory that a worker may allocate beyond what it holds after loading its rewards
    num_workers: int | None = None  # worker processes; None: one per core that this process may use
    max_concurrency: int = 64  # concurrent calls of an async reward
    recycle_after: int = 10_000  # calls after which a worker is replaced
    start_timeout_s: float = 60.0  # wall time that loading a reward's file in a worker may take
    # True if workers run other people's code. Each then drops its rights first, and `memory_mb` also covers the memory
    # that loading the file takes.
    sandboxed: bool = False
    allow_unsandboxed: bool = False  # True if uploaded code may run where it cannot be isolated
    disk_mb: int = 64  # total size of the files of a sandboxed worker

    def __post_init__(self) -> None:
        if self.execution not in PLACES:
            raise RewardError(
                f"rewards.execution must be one of {', '.join(PLACES)}, not {self.execution!r}", code="invalid_config"
            )
        for name in ("timeout_s", "memory_mb", "max_concurrency", "recycle_after", "start_timeout_s", "disk_mb"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise RewardError(f"rewards.{name} must be above 0 and finite, not {value}")
        if self.num_workers is not None and self.num_workers < 1:
            raise RewardError(
                f"rewards.num_workers must be at least 1, not {self.num_workers}; null starts one per core"
            )

    @property
    def workers(self) -> int:
        """Number of worker processes on this machine."""
        return self.num_workers or usable_cores()

    def worker_limits(self) -> WorkerLimits:
        """Return the limits of each worker."""
        return WorkerLimits(self.memory_mb * 2**20, self.recycle_after)

    def isolation(self) -> Isolation:
        """Return the rights of sandboxed workers, with a new scratch directory."""
        return Isolation.make(memory_bytes=self.memory_mb * 2**20, disk_bytes=self.disk_mb * 2**20, cpu_s=self.cpu_s)

    @property
    def cpu_s(self) -> int:
        """Processor time after which a sandboxed worker is killed. It is replaced earlier, between calls."""
        return math.ceil(_CPU_CALLS * self.timeout_s) + _CPU_BASE_S


def usable_cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
