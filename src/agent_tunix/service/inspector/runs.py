"""Runs: their list, and one with its curves, findings and configuration."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.service.inspector.pages import add_page, render
from agent_tunix.service.state import service_of


async def list_runs(request: Request, after: str | None = None) -> Response:
    """All runs, newest first."""
    service = service_of(request)
    page = await service.run_reads.make(service.runs.list, 50, after)
    return render(request, "runs.html", runs=page.data, has_more=page.has_more, after=after)


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
    add_page(app, "/runs", list_runs)
