"""Pages of runs: the list, and one run with its curves, findings and configuration."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.service.inspector.pages import add_page, render
from agent_tunix.service.inspector.showing import anchor_of, place_of
from agent_tunix.service.state import service_of
from agent_tunix.tracking.metrics_file import to_plain
from agent_tunix.tracking.report.live import Look
from agent_tunix.tracking.report.pictures import chart_to_data
from agent_tunix.web.problems import Json
from agent_tunix.workbench.diagnosis import Finding

_RUNS_A_PAGE = 50
_SEVERITIES = ("error", "warning", "info")
_LONGEST_VALUE = 2000


async def list_runs(request: Request, after: str | None = None) -> Response:
    """List all runs, newest first."""
    service = service_of(request)

    def look() -> Response:
        page = service.runs.list(_RUNS_A_PAGE, after)
        return render(
            request,
            "runs.html",
            runs=page.data,
            next=page.data[-1].id if page.data and page.has_more else None,
            is_first=after is None,
            has_roots=bool(service.settings.runs),
        )

    return await service.run_reads.run(look)


async def show_run(request: Request, id: str) -> Response:
    """Show a run; the page's script loads the curves."""
    service = service_of(request)

    def look() -> Response:
        run = service.runs.get(id)
        findings, damaged = run.findings()
        counted = Counter(found.severity.value for found in findings)
        config = run.config
        return render(
            request,
            "run.html",
            run=service.runs.summary(id),
            planned=_planned_steps(config),
            span=run.rollouts.span(),
            findings=[_finding(found) for found in sorted(findings, key=lambda one: (one.urgency, one.step))],
            severities=[(severity, counted[severity]) for severity in _SEVERITIES if counted[severity]],
            damaged=damaged,
            config=_sections(config),
        )

    return await service.run_reads.run(look)


async def curves(
    request: Request, id: str, step: int | None = None, version: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Return a run's charts; only the run's state if `step` and `version` show that the page has the current ones."""
    service = service_of(request)

    def look() -> Response:
        # Read before the curves: a run that ends in between is reported by the next look, with all its rows.
        state = service.runs.summary(id).state
        found = service.runs.get(id).curves.look((step, version) if version else None)
        return Json(to_plain({"state": state} | ({} if found is None else _drawn(found))))

    return await service.run_reads.run(look)


def _drawn(look: Look) -> dict[str, Any]:
    sections = [
        {
            "key": section.key,
            "title": section.title,
            "note": section.note,
            "charts": [chart_to_data(chart) for chart in section.charts],
        }
        for section in look.pictures.sections
    ]
    return {
        "step": look.step,
        "version": look.version,
        "is_whole": look.is_whole,
        "damaged": look.damaged,
        "rows_per_point": look.pictures.rows_per_point,
        "components_left_out": look.pictures.components_left_out,
        "sections": sections,
    }


def _planned_steps(config: Mapping[str, Any] | None) -> int | None:
    training = (config or {}).get("training")
    if not isinstance(training, dict):
        return None
    batches, epochs = training.get("num_batches"), training.get("num_epochs", 1)
    return batches * epochs if type(batches) is int and type(epochs) is int else None


def _finding(found: Finding) -> dict[str, Any]:
    places = [(str(name), place_of(str(name))) for name in found.rollout_ids]
    return {
        "name": found.name,
        "severity": found.severity.value,
        "step": found.step,
        "summary": found.summary,
        "subject": found.subject,
        "evidence": list(found.evidence.items()),
        "edits": found.edits,
        "rollouts": [
            {"id": name, "step": place[0], "group": place[1], "anchor": anchor_of(name)}
            for name, place in places
            if place
        ],
    }


def _sections(config: Mapping[str, Any] | None) -> list[tuple[str, list[tuple[str, str]]]] | None:
    """Return each group of a configuration with its keys and values; top-level keys come first, under ""."""
    if config is None:
        return None
    alone = [(name, _value(value)) for name, value in config.items() if not isinstance(value, dict)]
    groups = [(name, list(_leaves(value))) for name, value in config.items() if isinstance(value, dict) and value]
    return [("", alone), *groups] if alone else groups


def _leaves(group: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in group.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _value(value)


def _value(value: Any) -> str:
    """Return a value as the command line writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
    add_page(app, "/runs", list_runs)
    add_page(app, "/runs/{id}", show_run)
    add_page(app, "/runs/{id}/curves.json", curves)
