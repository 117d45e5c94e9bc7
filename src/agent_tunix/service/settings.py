"""Settings and limits of the service."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.errors import ServiceError


@dataclass(frozen=True, slots=True)
class TryLimits:
    """Limits of a try of an uploaded function."""

    max_rows: int = 64
    max_completions: int = 32  # completions per row
    timeout_s: float = 5.0  # wall time of a call, per completion that it scores
    # Wall time of the whole try; completions not scored by then have the outcome `timeout`.
    total_timeout_s: float = 30.0
    memory_mb: int = 1024  # memory that the process may allocate beyond what it holds before the function is loaded
    at_once: int = 4  # tries that run at the same time, half of them of one key; more are refused and may be repeated


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """Limits of a replay of a changed function on the stored completions of a run."""

    max_completions: int = 2000
    timeout_s: float = 2.0  # wall time of a call, per completion that it scores
    total_timeout_s: float = 60.0  # wall time of all scoring; completions not scored by then have the outcome `timeout`
    memory_mb: int = 1024  # memory that each process may allocate beyond what it holds before the function is loaded
    workers: int = 2
    movers: int = 12  # completions shown, those that move most
    at_once: int = 2  # replays that run at the same time, half of them of one key; more are refused and may be repeated


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Options of `agent-tunix serve`."""

    host: str = "127.0.0.1"
    port: int = 8400  # port to listen on; 0 picks a free one
    # Names allowed in the Host header besides `host` and those of this machine; `*` allows any.
    allowed_hosts: tuple[str, ...] = ()
    runs: tuple[Path, ...] = ()  # directories that are searched for runs
    allow_unsandboxed: bool = False  # True to run uploaded code on a machine that cannot isolate it
    max_body_bytes: int = 2 * 1024 * 1024
    header_timeout_s: float = 10.0  # seconds in which a request's headers must arrive
    body_timeout_s: float = 30.0  # seconds, after the headers, in which the body must arrive
    unread_timeout_s: float = 30.0  # seconds for which a client may read nothing of a response
    keep_alive_s: float = 15.0  # seconds for which an idle connection stays open
    max_connections: int = 1000
    requests_per_second: float = 200.0  # requests of one key, on average; 0 disables the limit
    burst: int = 1000  # requests that one key may make at once before the average applies
    failed_keys_per_second: float = 0.5  # invalid keys from one address, on average; 0 disables the limit
    failed_keys_burst: int = 30  # invalid keys that may come at once before the average applies
    tries: TryLimits = field(default_factory=TryLimits)
    replays: ReplayLimits = field(default_factory=ReplayLimits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ServiceError(f"the port must be 0 to 65535, not {self.port}")
        for name in self.allowed_hosts:
            if "*" in name.removeprefix("*.") and name != "*":
                raise ServiceError(
                    f"an allowed host must be a name, *.NAME or *, not {name!r}", code="invalid_allowed_host"
                )
        for what, rate, burst in (
            ("requests", self.requests_per_second, self.burst),
            ("failed keys", self.failed_keys_per_second, self.failed_keys_burst),
        ):
            if rate < 0 or burst < 1:
                raise ServiceError(
                    f"{what} per second must be at least 0 and the burst at least 1, not {rate:g} and {burst}"
                )

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the host."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
