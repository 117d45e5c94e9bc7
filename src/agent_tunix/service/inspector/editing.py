"""Editor of a function's source: try, replay, compare with the saved source, and save.

The page's form makes these requests; its script makes the same ones and inserts the response into the page.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agent_tunix.rewards import Score
from agent_tunix.service.api.tries import score_data
from agent_tunix.service.inspector.function_pages import (
    EXPECTED,
    OpenedFunction,
    as_problem,
    open_function,
    show_function,
    source_of,
    text_of,
)
from agent_tunix.service.inspector.functions import PATH
from agent_tunix.service.inspector.pages import add_page, render, wants_page
from agent_tunix.service.inspector.showing import place_of
from agent_tunix.service.replays import ReplayRequest, StepRange
from agent_tunix.service.reviews import Review, sha256_of
from agent_tunix.service.state import key_of, service_of
from agent_tunix.service.tries import TrialRow, check_size
from agent_tunix.tracking.report.cutting import cut
from agent_tunix.web.problems import Json, Problem

_MOST = 500
_LONGEST_TEXT = 4000
_LAST_STEP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TriedCompletion:
    """Completion that was typed, with its score."""

    text: str
    score: Score
    log: str
    more: str


async def try_source(request: Request, opened: OpenedFunction, form: FormData) -> dict[str, Any]:
    """Score the completions that were typed."""
    service = service_of(request)
    await _review(request, opened, form)
    texts = [box for box in form.getlist("completion") if isinstance(box, str) and box]
    if not texts:
        raise Problem(400, "missing_parameter", "write at least one completion to score", "completion")
    columns = _columns(text_of(form, "columns"))
    if answer := text_of(form, "answer"):
        columns["answer"] = answer
    row = TrialRow(text_of(form, "prompt"), texts, columns)
    check_size([row], service.settings.tries)
    tried = await service.tries.run(opened.as_uploaded(_bytes_of(form)), [row])
    scores = [_tried(text, score) for text, score in zip(texts, tried.scores[0], strict=True)]
    return {"tried": {"scores": scores, "seconds": tried.seconds}}


def _tried(text: str, score: Score) -> TriedCompletion:
    said = score_data(score)
    extras = said["extras"]
    log = extras.pop("log", "")
    more = {name: said[name] for name in ("components", "metrics", "extras") if said[name]}
    return TriedCompletion(
        cut(text, _LONGEST_TEXT),
        score,
        cut(log if isinstance(log, str) else str(log), _LONGEST_TEXT),
        cut(json.dumps(more, ensure_ascii=False, indent=2), _LONGEST_TEXT) if more else "",
    )


def _columns(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        columns = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "invalid_columns", f"the columns must be JSON: {error}", "columns") from error
    if not isinstance(columns, dict):
        raise Problem(400, "invalid_columns", 'the columns must be a JSON object, for example {"level": 3}', "columns")
    return columns


def _bytes_of(form: FormData) -> bytes:
    return source_of(form).encode("utf-8", "replace")


async def replay_source(request: Request, opened: OpenedFunction, form: FormData) -> dict[str, Any]:
    """Score a run's stored completions, and show the difference of the sources."""
    service = service_of(request)
    review = await _review(request, opened, form)
    if not text_of(form, "run"):
        raise Problem(400, "missing_parameter", "choose the run whose completions to score", "run")
    run = await service.run_reads.run(service.runs.get, text_of(form, "run"))
    indexed = service.runs.find(text_of(form, "run"))
    asked = ReplayRequest(
        opened.as_uploaded(),
        _bytes_of(form),
        StepRange(_number(form, "first"), _number(form, "last")),
        _number(form, "most") or _MOST,
        text_of(form, "against").strip() or None,
    )
    replayed = await service.replays.run(run, asked)
    movers = [
        {
            "of": mover,
            "place": place_of(mover.rollout_id),
            "prompt": cut(replayed.prompts[mover.rollout_id], _LONGEST_TEXT),
            "response": cut(mover.response, _LONGEST_TEXT),
        }
        for mover in replayed.totals.movers
    ]
    return {"replayed": {"run": indexed, "of": replayed, "movers": movers}, "review": review}


def _number(form: FormData, name: str) -> int | None:
    text = text_of(form, name).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= _LAST_STEP):
        raise Problem(400, f"invalid_{name}", f"{name} must be a whole number, not {text[:50]!r}", name)
    return int(text)


async def review_source(request: Request, opened: OpenedFunction, form: FormData) -> dict[str, Any]:
    """Show the difference of the sources."""
    return {"review": await _review(request, opened, form)}


async def _review(request: Request, opened: OpenedFunction, form: FormData) -> Review:
    reviews = service_of(request).reviews
    return await reviews.run(Review.of, opened.text, source_of(form), opened.record)


async def save(request: Request, id: str) -> Response:
    """Save the changed source as the next version, if it was reviewed."""
    form = await request.form()
    opened = await open_function(request, id)
    service = service_of(request)
    try:
        if text_of(form, "seen") != sha256_of(source_of(form)):
            raise Problem(
                409,
                "not_reviewed",
                "the difference between this source and the saved one must be shown before saving; show it first",
            )
        name = opened.record.name if opened.is_mine else text_of(form, "name").strip()
        create = service.store.reward_functions.create
        upload = (name, _bytes_of(form), opened.record.format, False, opened.record.function)
        made = await service.calls.write(create, key_of(request), *upload)
    except EXPECTED as error:
        return await _refuse(request, opened, form, error)
    return RedirectResponse(f"{PATH}/{made.id}?new=1", 303)


Work = Callable[[Request, OpenedFunction, FormData], Awaitable[dict[str, Any]]]


def _editing(work: Work, template: str) -> Callable[[Request, str], Awaitable[Response]]:
    """Return the form's endpoint: it answers with the whole page, or with only the result for the page's script."""

    async def answer(request: Request, id: str) -> Response:
        form = await request.form()
        opened = await open_function(request, id)
        try:
            results = await work(request, opened, form)
        except EXPECTED as error:
            return await _refuse(request, opened, form, error)
        if wants_page(request.scope):
            return await show_function(request, opened, given=form, **results)
        fields = {"name": text_of(form, "name")}
        page = render(request, template, function=opened.record, is_mine=opened.is_mine, fields=fields, **results)
        return Json({"html": bytes(page.body).decode()})

    return answer


async def _refuse(request: Request, opened: OpenedFunction, form: FormData, error: Exception) -> Response:
    problem = as_problem(error)
    if not wants_page(request.scope):
        raise problem from error
    return await show_function(request, opened, problem.status, problem.message, form)


def add_routes(app: FastAPI) -> None:
    """Add the endpoints of the form to an app."""
    one = f"{PATH}/{{id}}"
    add_page(app, f"{one}/try", _editing(try_source, "function_try.html"), ("try", "read"), "POST")
    add_page(app, f"{one}/replay", _editing(replay_source, "function_replay.html"), ("try", "read"), "POST")
    add_page(app, f"{one}/review", _editing(review_source, "function_review.html"), ("write", "read"), "POST")
    add_page(app, f"{one}/save", save, ("write", "read"), "POST")
