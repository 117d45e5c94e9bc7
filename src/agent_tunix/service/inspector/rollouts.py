"""Pages of completions: a run's list, one group, and one prompt at two steps."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

import numpy as np
from fastapi import FastAPI, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.rewards.advantages import group_std
from agent_tunix.service.inspector.pages import add_page, render
from agent_tunix.service.inspector.showing import Shown, show
from agent_tunix.service.state import service_of
from agent_tunix.tracking.live_run import LiveRun
from agent_tunix.tracking.rollouts.pages import (
    MAX_TEXT,
    Outcome,
    RolloutPage,
    RolloutQuery,
    RolloutQueryError,
    StopReason,
)
from agent_tunix.web.problems import Problem

_ROLLOUTS_A_PAGE = 20
_LONGEST_IN_LIST = 20_000
_LONGEST_IN_GROUP = 60_000
_MOST_OF_A_GROUP = 256
_LAST = 2**31 - 1

Number = Annotated[int, Path(ge=0, le=_LAST)]
Chosen = Annotated[int | None, Query(ge=0, le=_LAST)]


async def list_rollouts(request: Request, id: str) -> Response:
    """List a run's completions; the query string holds filter and order."""
    service = service_of(request)
    params = request.query_params
    refusal: RolloutQueryError | None = None
    try:
        query = query_of(params)
    except RolloutQueryError as error:  # shown beside the form, which keeps its values
        refusal, query = error, RolloutQuery()

    asked = {name: value for name, value in params.items() if value and name != "after"}

    def address(**changed: Any) -> str:
        given = {name: value for name, value in (asked | changed).items() if value is not None}
        return f"/runs/{id}/rollouts" + (f"?{urlencode(given)}" if given else "")

    def look() -> Response:
        run = service.runs.get(id)
        page = RolloutPage([], None, [])
        if refusal is None:
            page = run.rollouts.page(query, _ROLLOUTS_A_PAGE, params.get("after") or None, in_full=True)
        rollouts = [show(row, _LONGEST_IN_LIST, query.text) for row in page.rows]
        tools = {call.name for shown in rollouts for turn, _ in shown.turns for call in turn.calls if call.name}
        return render(
            request,
            "rollouts.html",
            200 if refusal is None else 400,
            refusal=refusal and str(refusal),
            run=service.runs.find(id),
            span=run.rollouts.span(),
            rollouts=rollouts,
            has_episodes=any(shown.turns for shown in rollouts) or _has_environment(run),
            tools=sorted(tools),
            next=page.next,
            problems=page.problems,
            query=query,
            asked=asked,
            is_first=not params.get("after"),
            address=address,
            outcomes=get_args(Outcome),
            stop_reasons=[reason for reason in get_args(StopReason) if reason not in ("stop", "length")],
            max_query=MAX_TEXT,
        )

    return await service.run_reads.run(look)


def _has_environment(run: LiveRun) -> bool:
    environment = (run.config or {}).get("environment")
    return isinstance(environment, dict) and any(environment.get(key) for key in ("name", "tools", "mcp"))


def query_of(params: Mapping[str, str]) -> RolloutQuery:
    """Return the query of a form, in which empty fields do not filter; raise RolloutQueryError for an invalid one."""
    return RolloutQuery(
        step=_whole(params, "step"),
        group=_whole(params, "group"),
        outcome=params.get("outcome") or None,
        least=_real(params, "min_reward"),
        most=_real(params, "max_reward"),
        text=params.get("q", ""),
        order=params.get("sort") or "place",
        stop_reason=params.get("stop_reason") or None,
        tool=params.get("tool", ""),
    )


async def show_group(request: Request, id: str, step: Number, group: Number) -> Response:
    """Show the completions of one prompt, with their rewards and advantages."""
    service = service_of(request)

    def look() -> Response:
        run = service.runs.get(id)
        page = run.rollouts.group(step, group)
        if not page.rows:
            said = [f"no completions of group {group} of step {step} can be shown", *page.problems]
            raise Problem(404, "group_not_found", "; ".join(said), "group")
        shown = [show(row, _LONGEST_IN_GROUP) for row in page.rows[:_MOST_OF_A_GROUP]]
        groups = run.rollouts.groups(step)
        place = groups.index(group) if group in groups else 0
        return render(
            request,
            "group.html",
            run=service.runs.find(id),
            span=run.rollouts.span(),
            step=step,
            group=group,
            rollouts=shown,
            left_out=len(page.rows) - len(shown),
            problems=page.problems,
            place=place,
            num_groups=len(groups),
            previous=groups[place - 1] if place > 0 else None,
            next=groups[place + 1] if place + 1 < len(groups) else None,
            **_statistics(page.rows),
        )

    return await service.run_reads.run(look)


async def compare(
    request: Request, id: str, step: Chosen = None, other: Chosen = None, prompt: Chosen = None
) -> Response:
    """Show the completions of a prompt at two steps side by side; by default the first and the last step."""
    service = service_of(request)

    def look() -> Response:
        run = service.runs.get(id)
        span = run.rollouts.span() or (0, 0)
        first, second = span[0] if step is None else step, span[1] if other is None else other
        shared, problems = run.rollouts.shared_prompts(first, second)
        chosen = next((one for one in shared if one.group == prompt), shared[0] if shared else None)
        groups = [(first, chosen.group), (second, chosen.other_group)] if chosen else []
        return render(
            request,
            "compare.html",
            run=service.runs.find(id),
            span=run.rollouts.span(),
            step=first,
            other=second,
            shared=shared,
            chosen=chosen,
            sides=[_side(run, *group, problems) for group in groups],
            problems=problems,
        )

    return await service.run_reads.run(look)


def _side(run: LiveRun, step: int, group: int, problems: list[str]) -> dict[str, Any]:
    """Return the completions of a group, highest reward first; add what was left out to the problems."""
    page = run.rollouts.group(step, group)
    problems += page.problems
    rows = page.rows[:_MOST_OF_A_GROUP]
    shown = sorted((show(row, _LONGEST_IN_LIST) for row in rows), key=_by_reward)
    return {"step": step, "group": group, "rollouts": shown} | _statistics(rows)


def _by_reward(shown: Shown) -> float:
    total = shown.row["total"]
    return math.inf if total is None else -total


def _statistics(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return statistics of the known totals, with the standard deviation that divides advantages."""
    totals = [row["total"] for row in rows if row["total"] is not None]
    return {
        "num_scored": len(totals),
        "mean": float(np.mean(totals)) if totals else None,
        "std": float(group_std(np.array([totals]))[0, 0]) if totals else None,
        "largest_advantage": max((abs(row["advantage"] or 0.0) for row in rows), default=0.0),
    }


def _whole(params: Mapping[str, str], name: str) -> int | None:
    text = params.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LAST):
        raise RolloutQueryError(name, f"{name} must be a whole number from 0 on, not {text[:40]!r}")
    return int(text)


def _real(params: Mapping[str, str], name: str) -> float | None:
    text = params.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise RolloutQueryError(name, f"{name} must be a number, not {text[:40]!r}") from None


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
    add_page(app, "/runs/{id}/rollouts", list_rollouts)
    add_page(app, "/runs/{id}/steps/{step}/groups/{group}", show_group)
    add_page(app, "/runs/{id}/compare", compare)
