"""Content of a reward function's pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.errors import AgentTunixError, NotStoredError, RewardError, StoreRequestError
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.service.inspector.pages import render
from agent_tunix.service.problems import problem_of
from agent_tunix.service.reviews import normalise
from agent_tunix.service.runs import RunSummary
from agent_tunix.service.state import Service, key_of, service_of
from agent_tunix.service.tries import cannot_be_tried
from agent_tunix.store import Page, RewardFunctionRecord
from agent_tunix.web.problems import Problem

_RUNS_OFFERED = 100
_BOXES = 3

# User errors, which are shown on the page where they were made.
EXPECTED = (Problem, StoreRequestError, RewardError)


@dataclass(frozen=True, slots=True)
class OpenedFunction:
    """Reward function that a page shows."""

    record: RewardFunctionRecord
    text: str  # its source, with line ends as a browser's editor sends them
    content: bytes
    versions: Page[RewardFunctionRecord]  # the newest versions of its name
    owner: str
    is_mine: bool  # True if the user's key owns it

    def as_uploaded(self, content: bytes | None = None) -> UploadedSource:
        """Return the function, with other content if given, as a source that can be called."""
        return self.record.to_uploaded(self.content if content is None else content, "this server")


async def open_function(request: Request, id: str) -> OpenedFunction:
    """Read a function from the store; raise NotStoredError if there is no function of that id."""
    service = service_of(request)
    functions = service.store.reward_functions
    record = await service.calls.read(functions.get, id)
    content = await service.calls.read(functions.source, id)
    return OpenedFunction(
        record,
        normalise(content.decode("utf-8-sig", "replace")),
        content,
        await service.calls.read(functions.versions, record.name),
        (await owners(service, [record]))[record.owner_id],
        record.owner_id == key_of(request).id,
    )


async def owners(service: Service, functions: Sequence[RewardFunctionRecord]) -> dict[str, str]:
    """Return id → name of the keys that own functions."""
    names = {}
    for id in {function.owner_id for function in functions}:
        try:
            names[id] = (await service.calls.read(service.store.keys.get, id)).name
        except NotStoredError:
            names[id] = id
    return names


async def show_function(
    request: Request,
    opened: OpenedFunction,
    status: int = 200,
    problem: str = "",
    given: FormData | None = None,
    **results: Any,
) -> Response:
    """Return the page of a function, with an error message in `problem`.

    The fields keep the values of the submitted form `given`. `results` may have `tried`, `replayed`, `review`, and
    `is_new` after an upload.
    """
    service = service_of(request)
    source = opened.text if given is None else source_of(given)
    runs: list[RunSummary] = []
    if "try" in key_of(request).scopes:
        runs = (await service.run_reads.run(service.runs.list, _RUNS_OFFERED)).data
    nothing = {"tried": None, "replayed": None, "review": None, "is_new": False}
    return render(
        request,
        "function.html",
        status,
        problem=problem,
        function=opened.record,
        owner=opened.owner,
        is_mine=opened.is_mine,
        versions=opened.versions,
        source=source,
        is_changed=source != opened.text,
        fields=fields_of(request, given),
        runs=runs,
        limits=service.settings,
        **{**nothing, **results},
    )


def source_of(form: FormData) -> str:
    """Return the source in the editor, which a browser sends with CRLF line ends."""
    return normalise(text_of(form, "source"))


def text_of(form: Mapping[str, Any], name: str) -> str:
    """Return a text field of a form; "" if there is none."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


def fields_of(request: Request, form: FormData | None) -> dict[str, Any]:
    """Return the values of all fields but the source: from the form, else from the query, else empty."""
    names = ("prompt", "answer", "columns", "run", "first", "last", "most", "against", "name")
    told: Mapping[str, Any] = request.query_params if form is None else form
    boxes = [] if form is None else [box for box in form.getlist("completion") if isinstance(box, str)]
    return {name: text_of(told, name) for name in names} | {"completions": boxes + [""] * (_BOXES - len(boxes))}


def as_problem(error: Exception) -> Problem:
    """Return the problem that reports a user's error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RewardError):
        return cannot_be_tried(error)
    assert isinstance(error, AgentTunixError)
    return problem_of(error)
