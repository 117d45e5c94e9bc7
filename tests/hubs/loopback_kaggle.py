"""A real HTTP server on the loopback that answers as Kaggle does, and misbehaves on demand.

`kagglehub` knows no address but those of Kaggle and of `http://localhost`; the server is therefore the proxy through
which the latter is asked.
"""

import io
import json
import socket
import tarfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Files = Mapping[str, bytes]


@dataclass
class Thing:
    """A model's variation or a dataset.

    Attributes:
        versions: Their files; the first is version 1.
        status: What is answered instead, where it is not 200.
        cut_after: Bytes after which the connection is closed; None: never.
    """

    versions: list[dict[str, bytes]] = field(default_factory=list)
    status: int = 200
    cut_after: int | None = None


class LoopbackKaggle:
    """The server.

    Attributes:
        models: `owner/model/framework/variation` → what it is.
        datasets: `owner/dataset` → what it is.
        asked: The names of the calls that came, in order.
    """

    def __init__(self) -> None:
        self.models: dict[str, Thing] = {}
        self.datasets: dict[str, Thing] = {}
        self.asked: list[str] = []
        kaggle = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                kaggle._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def environment(self, cache: Path) -> dict[str, str]:
        """What a process must have in its environment to use this server, with a cache of its own and no account."""
        proxy = f"http://127.0.0.1:{self._server.server_address[1]}"
        return {
            "KAGGLE_API_ENVIRONMENT": "LOCALHOST",
            "HTTP_PROXY": proxy,
            "http_proxy": proxy,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "KAGGLEHUB_CACHE": str(cache),
            "KAGGLE_CONFIG_DIR": str(cache / "no_account"),
        }

    def add_model(self, handle: str, *versions: Files, **settings: Any) -> Thing:
        """A variation of a model."""
        self.models[handle] = Thing([dict(files) for files in versions], **settings)
        return self.models[handle]

    def add_dataset(self, handle: str, *versions: Files, **settings: Any) -> Thing:
        """A dataset."""
        self.datasets[handle] = Thing([dict(files) for files in versions], **settings)
        return self.datasets[handle]

    def close(self) -> None:
        """Stop; a client then gets no connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        call = handler.path.rpartition("/")[2]
        self.asked.append(call)
        thing = self._find(wanted)
        if thing is None or thing.status != 200:
            status = 404 if thing is None else thing.status
            send(handler, status, json.dumps({"code": status, "message": "not to be had"}).encode())
            return
        version = wanted.get("versionNumber") or wanted.get("datasetVersionNumber") or len(thing.versions)
        files = thing.versions[version - 1]
        match call:
            case "GetModelInstance":
                send_json(handler, {"versionNumber": len(thing.versions)})
            case "GetDataset":
                send_json(handler, {"currentVersionNumber": len(thing.versions)})
            case "ListModelInstanceVersionFiles":
                send_json(handler, {"files": [{"name": name} for name in files], "nextPageToken": ""})
            case "DownloadModelInstanceVersion":
                send(handler, 200, files[wanted["path"]], "application/octet-stream", thing.cut_after)
            case "DownloadDataset":
                send(handler, 200, archive(files), "application/octet-stream", thing.cut_after)
            case _:
                send(handler, 404, b"{}")

    def _find(self, wanted: dict[str, Any]) -> Thing | None:
        if "datasetSlug" in wanted:
            return self.datasets.get(f"{wanted['ownerSlug']}/{wanted['datasetSlug']}")
        framework = wanted["framework"].removeprefix("MODEL_FRAMEWORK_").lower()
        return self.models.get(f"{wanted['ownerSlug']}/{wanted['modelSlug']}/{framework}/{wanted['instanceSlug']}")


def archive(files: Files) -> bytes:
    """As Kaggle packs a dataset."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(file)
            packed.addfile(entry, io.BytesIO(file))
    return content.getvalue()


def send_json(handler: BaseHTTPRequestHandler, value: Any) -> None:
    """A success."""
    send(handler, 200, json.dumps(value).encode())


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    content: bytes,
    kind: str = "application/json",
    cut: int | None = None,
) -> None:
    """An answer; with `cut`, only so many bytes of it, and then no connection."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[:cut])
    if cut is not None:
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
