"""Address and limits of a server."""

import ipaddress
from dataclasses import dataclass

from agent_tunix.errors import ServiceError


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Address and limits of a server."""

    host: str = "127.0.0.1"
    port: int = 8400  # port to listen on; 0 picks a free one
    # Names allowed in the Host header besides `host` and those of this machine; `*` allows any.
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: int = 2 * 1024 * 1024
    header_timeout_s: float = 10.0  # seconds in which a request's headers must arrive
    body_timeout_s: float = 30.0  # seconds, after the headers, in which the body must arrive
    keep_alive_s: float = 15.0  # seconds for which an idle connection stays open
    max_connections: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ServiceError(f"the port must be 0 to 65535, not {self.port}")
        for name in self.allowed_hosts:
            if "*" in name.removeprefix("*.") and name != "*":
                raise ServiceError(
                    f"an allowed host must be a name, *.NAME or *, not {name!r}", code="invalid_allowed_host"
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
