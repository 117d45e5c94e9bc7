"""Host header check, which stops web pages whose own name resolves to this service (DNS rebinding)."""

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from agent_tunix.service.problems import Problem

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = "*"


class Hosts:
    """Middleware that passes requests whose Host header is an allowed name or address; `*` allows any.

    The address on which a request arrived is always allowed: a web page cannot have another machine's address as its
    name.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(map(_plain, allowed))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Host header, then call the app."""
        if scope["type"] == "http" and ANY not in self._allowed:
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) != 1 or not self._is_allowed(given[0].decode("latin-1"), scope):
                raise Problem(
                    400,
                    "invalid_host",
                    "the Host header must name this service; use the address that it prints, or have its operator "
                    "add the name with --allowed-host",
                )
        await self._app(scope, receive, send)

    def _is_allowed(self, host: str, scope: Scope) -> bool:
        name = _plain(_without_port(host))
        own = scope.get("server")
        return name in self._allowed or (own is not None and _is_address(name) and name == _plain(str(own[0])))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(name: str) -> str:
    """Return a name or address in the canonical form that is compared."""
    name = name.strip().lower().rstrip(".").strip("[]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
