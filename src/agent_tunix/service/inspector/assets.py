"""Styles and scripts, read from the package once and served by exact name; no request reaches the file system.

Colours, fonts and charts come from the files of run reports.
"""

import functools
import hashlib
import importlib.resources
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.service.inspector.pages import add_page
from agent_tunix.web.problems import Problem

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OF_REPORTS = ("report.css", "base.js", "charts.js")


@dataclass(frozen=True, slots=True)
class Asset:
    """File that pages load, with its ETag."""

    content: bytes
    media_type: str
    tag: str


@functools.cache
def assets() -> dict[str, Asset]:
    """Return name → file."""
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
    """Return a file, or 304 if the browser has the current version."""
    found = assets().get(name)
    if found is None:
        raise Problem(404, "path_not_found", "there is no such file")
    headers = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


def add_routes(app: FastAPI) -> None:
    """Add the files to an app."""
    add_page(app, "/static/{name}", asset, scopes=None)
