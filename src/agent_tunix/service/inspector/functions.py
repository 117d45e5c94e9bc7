"""Pages of reward functions: the list with the upload form, and one version."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from agent_tunix.errors import NotStoredError, StoreRequestError, UploadError
from agent_tunix.service.inspector.pages import add_page, render
from agent_tunix.service.problems import problem_of
from agent_tunix.service.state import Service, key_of, service_of
from agent_tunix.store import RewardFunctionRecord
from agent_tunix.store.records import FORMATS, Format
from agent_tunix.store.uploads import MAX_BYTES
from agent_tunix.web.problems import Problem

PATH = "/functions"
_A_PAGE = 50


async def list_functions(request: Request, after: str | None = None, name: str | None = None) -> Response:
    """List all versions of all functions, newest first."""
    return await _show_list(request, after, name or None)


async def upload(request: Request) -> Response:
    """Store a file; errors are shown beside the form."""
    async with request.form() as form:
        try:
            made = await _keep(request, form)
        except (Problem, StoreRequestError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            return await _show_list(request, status=problem.status, problem=problem.message, given=form)
    return RedirectResponse(f"{PATH}/{made}?new=1", 303)


async def _keep(request: Request, form: FormData) -> str:
    service, file = service_of(request), form.get("file")
    format = cast(Format, _text_of(form, "format"))  # the store checks it
    if not isinstance(file, UploadFile) or not file.filename:
        raise Problem(400, "missing_parameter", "choose a Python file", "file")
    if (file.size or 0) > MAX_BYTES:
        raise UploadError(
            "file_too_large", f"the file must have at most {MAX_BYTES:,} bytes, not {file.size:,}", "file"
        )
    source = await file.read()
    create = service.store.reward_functions.create
    made = await service.calls.write(create, key_of(request), _text_of(form, "name"), source, format)
    return made.id


async def _show_list(
    request: Request,
    after: str | None = None,
    name: str | None = None,
    status: int = 200,
    problem: str = "",
    given: FormData | None = None,
) -> Response:
    service = service_of(request)
    page = await service.calls.read(service.store.reward_functions.list, _A_PAGE, after, name)
    return render(
        request,
        "functions.html",
        status,
        functions=page.data,
        owners=await _owners(service, page.data),
        mine=key_of(request).id,
        next=page.data[-1].id if page.has_more else None,
        is_first=after is None,
        name=name,
        formats=FORMATS,
        problem=problem,
        given={field: _text_of(given or {}, field) for field in ("name", "format")},
    )


async def show(request: Request, id: str, new: str = "") -> Response:
    """Show one version, with its source."""
    service = service_of(request)
    functions = service.store.reward_functions
    record = await service.calls.read(functions.get, id)
    source = await service.calls.read(functions.source, id)
    return render(
        request,
        "function.html",
        function=record,
        owner=(await _owners(service, [record]))[record.owner_id],
        is_mine=record.owner_id == key_of(request).id,
        is_new=bool(new),
        versions=await service.calls.read(functions.versions, record.name),
        source=source.decode("utf-8-sig", "replace"),
    )


async def _owners(service: Service, functions: Sequence[RewardFunctionRecord]) -> dict[str, str]:
    """Return id → name of the keys that own functions."""
    names = {}
    for id in {function.owner_id for function in functions}:
        try:
            names[id] = (await service.calls.read(service.store.keys.get, id)).name
        except NotStoredError:
            names[id] = id
    return names


def _text_of(form: Mapping[str, Any], name: str) -> str:
    """Return a text field of a form; "" if there is none."""
    value = form.get(name)
    return value if isinstance(value, str) else ""


async def delete(request: Request, id: str) -> Response:
    """Delete a version that belongs to the user's key."""
    service = service_of(request)
    await service.calls.write(service.store.reward_functions.delete, key_of(request), id)
    return RedirectResponse(PATH, 303)


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
    add_page(app, PATH, list_functions)
    add_page(app, PATH, upload, ("write",), "POST")
    add_page(app, f"{PATH}/{{id}}", show)
    add_page(app, f"{PATH}/{{id}}/delete", delete, ("write",), "POST")
