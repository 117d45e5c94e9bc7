"""A real HTTP server on the loopback, from which the stand-ins of the hubs derive."""

import abc
import contextlib
import json
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Files = Mapping[str, bytes]


class LoopbackServer(abc.ABC):
    """A server that listens on a free port from its construction to `close`."""

    def __init__(self) -> None:
        connections: list[socket.socket] = []
        serve = self.serve

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                serve(self, read_body(self))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        for method in ("HEAD", "POST", "PUT"):
            setattr(Handler, f"do_{method}", Handler.do_GET)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def get_request(self) -> tuple[socket.socket, Any]:
                connection, address = super().get_request()
                connections.append(connection)
                return connection, address

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that gave up

        self._connections = connections
        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @abc.abstractmethod
    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""

    def close(self) -> None:
        """Stop; a client then gets no connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # It has ended.
                connection.shutdown(socket.SHUT_RDWR)


def read_body(handler: BaseHTTPRequestHandler) -> bytes:
    """Read what a request carries, of known length or in chunks."""
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    value: Any,
    headers: Mapping[str, str] | None = None,
    cut: int | None = None,
) -> None:
    """Send an answer: bytes, or JSON; with `cut`, only that many bytes of it, and then no connection."""
    is_file = isinstance(value, bytes)
    content = value if is_file else json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/octet-stream" if is_file else "application/json")
    for name, header in (headers or {}).items():
        handler.send_header(name, header)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    handler.wfile.write(content[:cut])
    if cut is not None:
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)
