"""A real HTTP server on the loopback that answers as Google Cloud Storage's JSON API does."""

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class LoopbackGcs:
    """The server.

    Attributes:
        buckets: Name → files by their whole names.
        status: What is answered instead, where it is not 200.
        damaged: Files of which another content is sent than their checksums say.
        downloads: Files whose content was asked for, in order.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.status = 200
        self.damaged: set[str] = set()
        self.downloads: list[str] = []
        gcs = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                gcs._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For STORAGE_EMULATOR_HOST."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop; a client then gets no connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        if self.status != 200:
            send(
                handler, self.status, {"error": {"code": self.status, "message": "does not have storage.objects.list"}}
            )
        elif match := re.fullmatch(r"/(?:download/)?storage/v1/b/([^/]+)/o(?:/([^/]+))?", url.path):
            files = self.buckets.get(match[1])
            name = unquote(match[2] or "")
            if files is None or (name and name not in files):
                refuse(handler, 404, "The specified bucket does not exist.")
            elif name:
                self.downloads.append(name)
                content = files[name]
                sent = bytes(len(content)) if name in self.damaged else content
                send(handler, 200, sent, {"X-Goog-Hash": f"crc32c={crc32c(content)}"})
            else:
                prefix = parse_qs(url.query).get("prefix", [""])[0]
                send(
                    handler, 200, {"items": [describe(name, files[name]) for name in files if name.startswith(prefix)]}
                )
        else:
            refuse(handler, 404, f"{url.path} is not of this server")


def describe(name: str, content: bytes) -> dict[str, str]:
    """A file as it is listed."""
    return {"name": name, "size": str(len(content)), "crc32c": crc32c(content), "generation": "1"}


def crc32c(content: bytes) -> str:
    """The checksum that Google keeps of a file."""
    import google_crc32c

    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()


def refuse(handler: BaseHTTPRequestHandler, status: int, message: str) -> None:
    """An answer other than success."""
    send(handler, status, {"error": {"code": status, "message": message}})


def send(
    handler: BaseHTTPRequestHandler, status: int, value: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    """An answer: JSON, or a file."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/octet-stream" if isinstance(value, bytes) else "application/json")
    handler.send_header("Content-Length", str(len(content)))
    for name, header in (headers or {}).items():
        handler.send_header(name, header)
    handler.end_headers()
    handler.wfile.write(content)
