"""Styles and scripts: read once from the package, and served by exact name, so that no request reaches the file system.

Colours, type and charts are those of a report, from the very files that it is made of.
"""

import functools
import hashlib
import importlib.resources
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.service.inspector.pages import add_page
from agent_tunix.service.problems import Problem

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OF_REPORTS = ("report.css", "base.js", "charts.js")


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages load.

    Attributes:
        content: Its bytes.
        media_type: What it is.
        tag: Its ETag.
    """

    content: bytes
    media_type: str
    tag: str


@functools.cache
def assets() -> dict[str, Asset]:
    """Name → file."""
    own = importlib.resources.files("agent_tunix.service.inspector") / "static"
    reports = importlib.resources.files("agent_tunix.tracking.report") / "assets"
    files = [file for file in own.iterdir() if file.name.rpartition(".")[2] in _TYPES]
    files += [reports / name for name in _OF_REPORTS]
    found = {}
    for file in files:
        content = file.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[file.name] = Asset(content, _TYPES[file.name.rpartition(".")[2]], tag)
    return found


async def asset(request: Request, name: str) -> Response:
    """A file; a browser that has it asks whether it is still the same."""
    found = assets().get(name)
    if found is None:
        raise Problem(404, "path_not_found", "there is no such file")
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


def add_routes(app: FastAPI) -> None:
    """Add the files to an app."""
    add_page(app, "/static/{name}", asset, scope=None)
