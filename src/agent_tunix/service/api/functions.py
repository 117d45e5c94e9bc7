"""The endpoints under `/v1/reward_functions`."""

from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, File, Form, Path, Query, Request, UploadFile
from starlette.responses import Response

from agent_tunix.errors import UploadError
from agent_tunix.service.api import models
from agent_tunix.service.api.documentation import BODY, FUNCTION, documented
from agent_tunix.service.api.tries import try_function
from agent_tunix.service.gate import API
from agent_tunix.service.state import key_of, service_of
from agent_tunix.store import Format, Key
from agent_tunix.store.reward_functions import MAX_LIMIT
from agent_tunix.store.uploads import MAX_BYTES
from agent_tunix.web.problems import Json, Problem

PATH = f"{API}/reward_functions"
SOURCE_TYPE = "text/x-python"

# Only for the document: the store checks names and ids, with better messages.
_ID = {"pattern": models.ID}
_NAME = {"pattern": models.NAME}

FunctionId = Annotated[str, Path(description="`rf_…`", json_schema_extra=_ID)]


async def _key(request: Request) -> Key:
    return key_of(request)


Asking = Annotated[Key, Depends(_key)]


def _requires_type(wanted: str) -> Any:
    async def check(request: Request) -> None:
        given = request.headers.get("content-type", "")
        if given.partition(";")[0].strip().lower() != wanted:
            raise Problem(
                415, "unsupported_media_type", f"the body must be sent as {wanted}, not {given or 'without a type'}"
            )

    return Depends(check)


async def create(
    request: Request,
    key: Asking,
    name: Annotated[str, Form(description="Name of your own function, or a new one", json_schema_extra=_NAME)],
    file: Annotated[UploadFile, File(description="Python in UTF-8, of at most 256 KB; it is checked, and never run")],
    format: Annotated[Format, Form(description="Calling convention of the function")],
    if_changed: Annotated[
        bool,
        Form(
            description=(
                "If the newest version of the name is identical to the file, return that version and store nothing"
            )
        ),
    ] = False,
    function: Annotated[str, Form(max_length=100, description="Name of the function in the file")] = "reward",
) -> Response:
    """Upload a reward function. A name that belongs to your key gets its next version.

    If the response is lost, the file may or may not have been stored; with `if_changed` it is safe to repeat the
    request.
    """
    if (file.size or 0) > MAX_BYTES:
        raise UploadError(
            "file_too_large", f"the file must have at most {MAX_BYTES:,} bytes, not {file.size:,}", "file"
        )
    service = service_of(request)
    source = await file.read()
    upload = (name, source, format, if_changed, function)
    made = await service.calls.write(service.store.reward_functions.create, key, *upload)
    return Json(made.to_data(), 201)


async def list_functions(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most functions to return")] = 20,
    after: Annotated[str | None, Query(description="Only functions older than this id", json_schema_extra=_ID)] = None,
    name: Annotated[str | None, Query(description="Only the versions of this name")] = None,
) -> Response:
    """List reward functions, newest first. Following the pages shows each function that is not deleted exactly once."""
    service = service_of(request)
    page = await service.calls.read(service.store.reward_functions.list, limit, after, name)
    return Json({"object": "list", "data": [one.to_data() for one in page.data], "has_more": page.has_more})


async def get(request: Request, id: FunctionId) -> Response:
    """Get one reward function."""
    service = service_of(request)
    return Json((await service.calls.read(service.store.reward_functions.get, id)).to_data())


async def source(request: Request, id: FunctionId) -> Response:
    """Get the source of a reward function, byte for byte."""
    service = service_of(request)
    found = await service.calls.read(service.store.reward_functions.get, id)
    content = await service.calls.read(service.store.reward_functions.source, id)
    headers = {"Content-Disposition": f'attachment; filename="{found.name}.py"'}
    return Response(content, media_type=SOURCE_TYPE, headers=headers)


async def delete(request: Request, key: Asking, id: FunctionId) -> Response:
    """Delete a version that belongs to your key; one of another key is not found."""
    service = service_of(request)
    await service.calls.write(service.store.reward_functions.delete, key, id)
    return Json({"id": id, "object": "reward_function", "deleted": True})


def add_routes(app: FastAPI) -> None:
    """Add the endpoints to an app."""
    one, add = f"{PATH}/{{id}}", partial(app.add_api_route, tags=["reward functions"])
    form: dict[str, Any] = {"status_code": 201, "dependencies": [_requires_type("multipart/form-data")]}
    as_json: dict[str, Any] = {"dependencies": [_requires_type("application/json")]}
    raw: dict[str, Any] = {"response_class": Response}
    for method, path, endpoint, name, model, responses, further in (
        ("POST", PATH, create, "create_reward_function", models.RewardFunction, documented(*BODY, 409), form),
        ("GET", PATH, list_functions, "list_reward_functions", models.RewardFunctionList, documented(), {}),
        ("GET", one, get, "get_reward_function", models.RewardFunction, documented(*FUNCTION), {}),
        ("GET", f"{one}/source", source, "get_reward_function_source", None, documented(*FUNCTION) | _SOURCE, raw),
        ("DELETE", one, delete, "delete_reward_function", models.DeletedRewardFunction, documented(*FUNCTION), {}),
        (
            "POST",
            f"{one}/try",
            try_function,
            "try_reward_function",
            models.TryResult,
            documented(*FUNCTION, *BODY),
            as_json,
        ),
    ):
        add(path, endpoint, methods=[method], name=name, response_model=model, responses=responses, **further)


_SOURCE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file", "content": {SOURCE_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}
