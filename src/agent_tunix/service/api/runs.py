"""The read-only endpoints under `/v1/runs`."""

from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from starlette.responses import Response

from agent_tunix.service.api import run_models
from agent_tunix.service.api.documentation import FUNCTION, documented
from agent_tunix.service.gate import API
from agent_tunix.service.runs import MAX_LIMIT
from agent_tunix.service.state import service_of
from agent_tunix.tracking.metrics_tail import MAX_ROWS
from agent_tunix.tracking.rollouts.pages import MAX_TEXT, Order, Outcome, RolloutQuery, StopReason
from agent_tunix.web.problems import Json

PATH = f"{API}/runs"
_LAST_STEP = 2**31 - 1
_MAX_ROLLOUTS = 100
_ID = {"pattern": run_models.RUN_ID}

RunId = Annotated[str, Path(description="`run_…`", json_schema_extra=_ID)]
Number = Annotated[int | None, Query(ge=0, le=_LAST_STEP)]


async def list_runs(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most runs to return")] = 20,
    after: Annotated[str | None, Query(description="Only runs older than this id", json_schema_extra=_ID)] = None,
) -> Response:
    """List runs, newest first."""
    service = service_of(request)
    page = await service.run_reads.run(service.runs.list, limit, after)
    return Json({"object": "list", "data": [one.to_data() for one in page.data], "has_more": page.has_more})


async def get(request: Request, id: RunId) -> Response:
    """Get one run, with its configuration and evaluations."""
    service = service_of(request)

    def look() -> dict[str, Any]:
        run = service.runs.get(id)
        first, last = run.rollouts.span() or (None, None)
        evaluations, num_left_out = run.metrics.evaluations()
        return service.runs.summary(id).to_data() | {
            "components": run.components(),
            "evaluations": [_metrics(row) for row in evaluations],
            "evaluations_left_out": num_left_out,
            "first_rollouts": first,
            "last_rollouts": last,
            "config": run.config,
        }

    return Json(await service.run_reads.run(look))


async def metrics(
    request: Request,
    id: RunId,
    after: Annotated[int | None, Query(ge=-1, le=_LAST_STEP, description="Only later steps than this")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Most rows to return")] = 1000,
) -> Response:
    """List a run's metrics, step by step. To get new ones, pass as `after` the last step received."""
    service = service_of(request)
    page = await service.run_reads.run(lambda: service.runs.get(id).metrics.page(after, limit))
    return Json(
        {
            "object": "list",
            "data": [_metrics(row) for row in page.rows],
            "has_more": page.next is not None,
            "next": page.next,
            "version": page.version,
            "damaged": page.damaged,
        }
    )


async def rollouts(
    request: Request,
    id: RunId,
    step: Number = None,
    group: Number = None,
    outcome: Annotated[Outcome | None, Query()] = None,
    min_reward: Annotated[float | None, Query(description="Only with at least this reward")] = None,
    max_reward: Annotated[float | None, Query(description="Only with at most this reward")] = None,
    q: Annotated[str, Query(max_length=MAX_TEXT, description="Only responses that contain this text")] = "",
    sort: Annotated[Order, Query(description="The order within a step; with `-` in descending order")] = "place",
    stop_reason: Annotated[StopReason | None, Query(description="Only with this reason why it ended")] = None,
    tool: Annotated[str, Query(max_length=MAX_TEXT, description="Only episodes that called this tool")] = "",
    limit: Annotated[int, Query(ge=1, le=_MAX_ROLLOUTS, description="Most rollouts to return")] = 20,
    after: Annotated[str | None, Query(description="`next` of the previous page of the same query")] = None,
) -> Response:
    """List a run's completions. With `step` and `group`: those of one prompt, with their advantages."""
    service = service_of(request)
    query = RolloutQuery(step, group, outcome, min_reward, max_reward, q, sort, stop_reason, tool)
    page = await service.run_reads.run(lambda: service.runs.get(id).rollouts.page(query, limit, after))
    return Json(
        {
            "object": "list",
            "data": [_rollout(row) for row in page.rows],
            "has_more": page.next is not None,
            "next": page.next,
            "problems": page.problems,
        }
    )


async def findings(request: Request, id: RunId) -> Response:
    """List the findings that were made during a run."""
    service = service_of(request)
    found, damaged = await service.run_reads.run(lambda: service.runs.get(id).findings())
    data = [{"object": "finding", **one.to_data()} for one in found]
    return Json({"object": "list", "data": data, "has_more": False, "damaged": damaged})


def _metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {"step": row["step"], "values": {name: value for name, value in row.items() if name != "step"}}


def _rollout(row: dict[str, Any]) -> dict[str, Any]:
    named = {"object": "rollout", "id": row["rollout_id"], "reward": row["total"]}
    return named | {name: value for name, value in row.items() if name not in ("rollout_id", "total")}


def add_routes(app: FastAPI) -> None:
    """Add the endpoints to an app."""
    one = f"{PATH}/{{id}}"
    add = partial(app.add_api_route, tags=["runs"], methods=["GET"])
    add(PATH, list_runs, name="list_runs", response_model=run_models.RunList, responses=documented())
    of_one = (
        (one, get, "get_run", run_models.RunDetail),
        (f"{one}/metrics", metrics, "get_run_metrics", run_models.MetricsList),
        (f"{one}/rollouts", rollouts, "list_run_rollouts", run_models.RolloutList),
        (f"{one}/findings", findings, "list_run_findings", run_models.FindingList),
    )
    for path, endpoint, name, model in of_one:
        add(path, endpoint, name=name, response_model=model, responses=documented(*FUNCTION))
