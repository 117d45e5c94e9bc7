"""A server that answers as Kaggle does, and misbehaves on demand.

`kagglehub` knows no address but those of Kaggle and of `http://localhost`; the server is therefore the proxy through
which the latter is asked.
"""

import io
import json
import tarfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.hubs.loopback import Files, LoopbackServer, send


@dataclass
class Resource:
    """A model's variation or a dataset.

    Attributes:
        versions: Their files; the first is version 1.
        status: The status of every answer, if not 200.
        cut_after: Bytes after which a download is cut off; None: never.
    """

    versions: list[Files] = field(default_factory=list)
    status: int = 200
    cut_after: int | None = None


class LoopbackKaggle(LoopbackServer):
    """Models and datasets.

    Attributes:
        resources: `owner/model/framework/variation` or `owner/dataset` → what it is.
        asked: The names of the calls that came, in order.
    """

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.asked: list[str] = []
        super().__init__()

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        wanted = json.loads(body)
        call = handler.path.rpartition("/")[2]
        self.asked.append(call)
        resource = self.resources.get(handle_of(wanted))
        number = wanted.get("versionNumber") or wanted.get("datasetVersionNumber") or 0
        status = 404 if resource is None or number > len(resource.versions) else resource.status
        if resource is None or status != 200:
            send(handler, status, {"code": status, "message": "no such resource"})
            return
        files = resource.versions[number - 1]
        match call:
            case "GetModelInstance":
                send(handler, 200, {"versionNumber": len(resource.versions)})
            case "GetDataset":
                send(handler, 200, {"currentVersionNumber": len(resource.versions)})
            case "ListModelInstanceVersionFiles":
                send(handler, 200, {"files": [{"name": name} for name in files], "nextPageToken": ""})
            case "DownloadModelInstanceVersion":
                send(handler, 200, files[wanted["path"]], cut=resource.cut_after)
            case "DownloadDataset":
                send(handler, 200, archive(files), cut=resource.cut_after)
            case _:
                send(handler, 404, {})


def handle_of(wanted: dict[str, Any]) -> str:
    if "datasetSlug" in wanted:
        return f"{wanted['ownerSlug']}/{wanted['datasetSlug']}"
    framework = wanted["framework"].removeprefix("MODEL_FRAMEWORK_").lower()
    return f"{wanted['ownerSlug']}/{wanted['modelSlug']}/{framework}/{wanted['instanceSlug']}"


def archive(files: Files) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(file)
            packed.addfile(entry, io.BytesIO(file))
    return content.getvalue()
