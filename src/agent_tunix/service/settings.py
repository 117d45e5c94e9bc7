"""Settings and limits of the service."""

from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.web.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class TryLimits:
    """Limits of a try of an uploaded function."""

    max_rows: int = 64
    max_completions: int = 32  # completions per row
    timeout_s: float = 5.0  # wall time of a call, per completion that it scores
    # Wall time of the whole try; completions not scored by then have the outcome `timeout`.
    total_timeout_s: float = 30.0
    memory_mb: int = 1024  # memory that the process may allocate beyond what it holds before the function is loaded
    at_once: int = 4  # tries that run at the same time; more are refused and may be repeated


@dataclass(frozen=True, slots=True)
class ServiceSettings(ServerSettings):
    """Options of `agent-tunix serve`."""

    requests_per_second: float = 200.0  # requests of one key, on average; 0 disables the limit
    burst: int = 1000  # requests that one key may make at once before the average applies
    runs: tuple[Path, ...] = ()  # directories that are searched for runs
    allow_unsandboxed: bool = False  # True to run uploaded code on a machine that cannot isolate it
    tries: TryLimits = field(default_factory=TryLimits)
