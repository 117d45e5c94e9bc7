"""How the service is run, and within which limits."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.errors import ServiceError


@dataclass(frozen=True, slots=True)
class TryLimits:
    """What a try of an uploaded function may take.

    Attributes:
        max_rows: Rows of a request.
        max_completions: Completions of a row.
        timeout_s: Wall time of a call, for each completion that it scores.
        total_timeout_s: Wall time of the whole; what is not scored by then has the outcome `timeout`.
        memory_mb: What its process may allocate beyond what it holds before the function is loaded.
        at_once: Tries that run at the same time; whoever comes when all are taken is told to come again.
    """

    max_rows: int = 64
    max_completions: int = 32
    timeout_s: float = 5.0
    total_timeout_s: float = 30.0
    memory_mb: int = 1024
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """What a replay of a changed function on a run's stored completions may take.

    Attributes:
        max_completions: Completions that are scored.
        timeout_s: Wall time of a call, for each completion that it scores.
        total_timeout_s: Wall time of all scoring; what is not scored by then has the outcome `timeout`.
        memory_mb: What each of its processes may allocate beyond what it holds before the function is loaded.
        workers: Its processes.
        movers: Completions that are shown of those that move most.
        at_once: Replays that run at the same time; whoever comes when all are taken is told to come again.
    """

    max_completions: int = 2000
    timeout_s: float = 2.0
    total_timeout_s: float = 60.0
    memory_mb: int = 1024
    workers: int = 2
    movers: int = 12
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What `agent-tunix serve` was told.

    Attributes:
        host: The address it listens on.
        port: The port; 0: any that is free.
        allowed_hosts: Names by which it may be asked besides its host and those of this machine; `*`: by any.
        runs: Directories under which runs are looked for.
        allow_unsandboxed: Whether uploaded code is run where this machine cannot lock it in.
        max_body_bytes: Of a request.
        header_timeout_s: By when a request's headers must have come.
        body_timeout_s: By when its body must have come, from its headers on.
        unread_timeout_s: How long whoever is answered may take in nothing of the answer.
        keep_alive_s: How long an idle connection is kept.
        max_connections: Connections at a time.
        requests_per_second: Of one key, on average; 0: without a limit.
        burst: How many requests one key may have at once before that average counts.
        failed_keys_per_second: Keys that are not valid from one address, on average; 0: without a limit.
        failed_keys_burst: How many of them may come at once before that average counts.
        tries: What a try may take.
        replays: What a replay may take.
    """

    host: str = "127.0.0.1"
    port: int = 8400
    allowed_hosts: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()
    allow_unsandboxed: bool = False
    max_body_bytes: int = 2 * 1024 * 1024
    header_timeout_s: float = 10.0
    body_timeout_s: float = 30.0
    unread_timeout_s: float = 30.0
    keep_alive_s: float = 15.0
    max_connections: int = 1000
    requests_per_second: float = 200.0
    burst: int = 1000
    failed_keys_per_second: float = 0.5
    failed_keys_burst: int = 30
    tries: TryLimits = field(default_factory=TryLimits)
    replays: ReplayLimits = field(default_factory=ReplayLimits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ServiceError(f"the port must be 0 to 65535, not {self.port}", code="invalid_port")
        for what, rate, burst in (
            ("requests", self.requests_per_second, self.burst),
            ("failed keys", self.failed_keys_per_second, self.failed_keys_burst),
        ):
            if rate < 0 or burst < 1:
                raise ServiceError(
                    f"{what} per second must be at least 0 and the burst at least 1, not {rate:g} and {burst}",
                    code="invalid_rate",
                )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
