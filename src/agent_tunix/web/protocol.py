"""HTTP protocol for uvicorn with the limits that uvicorn lacks.

They cover headers that do not arrive, and too many connections.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from agent_tunix.web.problems import Problem


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 protocol with a timeout for request headers and a limit on connections.

    Errors before a request exists are answered in the API's shape too. `limited` makes classes with other limits.
    """

    header_timeout_s = 10.0
    max_connections = 1000

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Start to wait for headers, or refuse the connection if there are too many."""
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        if len(self.connections) > self.max_connections:
            self._refuse(Problem(503, "too_many_connections", "the server has too many connections; try again later"))
            return
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Process data, and stop the header timer once the headers are complete."""
        if self.transport.is_closing():
            return
        was_idle = self._is_idle()
        if was_idle and self._deadline is None:  # first bytes of another request on this connection
            self._await_headers()
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the headers of the next request if some of them have arrived."""
        super().on_response_complete()
        if self._is_idle() and self.conn.trailing_data[0] and self._deadline is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the header timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer data that is not HTTP, or end the connection if it has its answer."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        self._refuse(Problem(400, "malformed_request", f"{msg} Send HTTP/1.1 with headers of at most 64 KB in all."))

    def _is_idle(self) -> bool:
        """Return True if no request is being served: its headers are not complete."""
        return self.conn.their_state is h11.IDLE

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing() and self._is_idle():
            self._refuse(Problem(408, "header_timeout", f"the headers must arrive within {self.header_timeout_s:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Send an error and close the connection."""
        self._stop_waiting()
        content = json.dumps(problem.to_data(), separators=(",", ":")).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(content))),
            ("connection", "close"),
            *((name.lower(), value) for name, value in problem.headers.items()),
        ]
        events: list[Any] = [
            h11.Response(status_code=problem.status, headers=headers, reason=STATUS_PHRASES[problem.status]),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def limited(header_timeout_s: float, max_connections: int) -> type[LimitedProtocol]:
    """Return a protocol class with the given limits."""
    limits = {"header_timeout_s": header_timeout_s, "max_connections": max_connections}
    return type("LimitedProtocol", (LimitedProtocol,), limits)
