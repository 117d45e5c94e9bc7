"""The endpoint that tries an uploaded function."""

from typing import Annotated, Any

from fastapi import Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Score
from agent_tunix.rewards.score_data import show_fields
from agent_tunix.service.api.models import ID, TryRequest
from agent_tunix.service.state import service_of
from agent_tunix.service.tries import TrialRow, Tried, cannot_be_tried, check_size
from agent_tunix.tracking.rollouts.encoding import to_json
from agent_tunix.web.problems import Json


async def try_function(
    request: Request,
    id: Annotated[str, Path(description="`rf_…`", json_schema_extra={"pattern": ID})],
    body: TryRequest,
) -> Response:
    """Score completions with a function, in its own process, which can reach nothing."""
    service = service_of(request)
    functions = service.store.reward_functions
    record = await service.calls.read(functions.get, id)
    content = await service.calls.read(functions.source, id)
    rows = [
        TrialRow(row.prompt, row.completions, row.columns | ({} if row.answer is None else {"answer": row.answer}))
        for row in body.rows
    ]
    check_size(rows, service.settings.tries)
    source = record.to_uploaded(content, "this server")
    try:
        tried = await service.tries.run(source, rows, body.step)
    except RewardError as error:
        raise cannot_be_tried(error) from error
    return await run_in_threadpool(_answer, id, tried)  # extras may be large


def _answer(id: str, tried: Tried) -> Response:
    scores = [
        {"row": row, "completion": completion} | score_data(score)
        for row, found in enumerate(tried.scores)
        for completion, score in enumerate(found)
    ]
    return Json({"object": "try", "reward_function": id, "data": scores, "seconds": tried.seconds})


def score_data(score: Score) -> dict[str, Any]:
    """Return a score as a JSON object; values of its extras that JSON cannot express have the key `$type`."""
    names = ("value", "outcome", "detail", "seconds", "components", "metrics", "extras")
    data: dict[str, Any] = to_json(show_fields(score, *names))
    return data
