"""A server that answers as Google Cloud Storage's JSON API does."""

import base64
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hubs.loopback import LoopbackServer, send


class LoopbackGcs(LoopbackServer):
    """Buckets, and what goes wrong with them.

    Attributes:
        buckets: Name → files by their whole names.
        status: The status of every answer, if not 200.
        damaged: Files that arrive as zeros, which their checksums do not fit.
        asked: Files whose content was asked for, and `list` for each listing.
    """

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.status = 200
        self.damaged: set[str] = set()
        self.asked: list[str] = []
        super().__init__()

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        url = urlsplit(handler.path)
        match = re.fullmatch(r"/(?:download/)?storage/v1/b/([^/]+)/o(?:/([^/]+))?", url.path)
        files = self.buckets.get(match[1]) if match else None
        name = unquote(match[2] or "") if match else ""
        self.asked.append(name or "list")
        status = self.status
        if status == 200 and (files is None or (name and name not in files)):
            status = 404
        if status != 200 or files is None:
            send(handler, status, {"error": {"code": status, "message": "no storage.objects.get"}})
        elif name:
            content = bytes(len(files[name])) if name in self.damaged else files[name]
            send(handler, 200, content, {"X-Goog-Hash": f"crc32c={crc32c(files[name])}"})
        else:
            prefix = parse_qs(url.query).get("prefix", [""])[0]
            items = [describe(name, files[name]) for name in files if name.startswith(prefix)]
            send(handler, 200, {"items": items})


def describe(name: str, content: bytes) -> dict[str, str]:
    return {"name": name, "size": str(len(content)), "crc32c": crc32c(content), "generation": "1"}


def crc32c(content: bytes) -> str:
    """Return the checksum that Google keeps of a file."""
    import google_crc32c

    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
