"""The ASGI app of a served policy: its routes, and the middleware around them."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from agent_tunix.serving.gate import OPEN_PATHS, KeyGate
from agent_tunix.serving.policy_service import AdapterHost, PolicyService, in_thread, service_of
from agent_tunix.serving.routes import answers, parameters
from agent_tunix.serving.routes.answering import problem_of
from agent_tunix.serving.routes.chat import create_chat_completion
from agent_tunix.serving.routes.completions import create_completion
from agent_tunix.version import __version__
from agent_tunix.web import failures
from agent_tunix.web.documentation import error_responses, make_document
from agent_tunix.web.middleware import LOOPBACK, Bodies, Envelope, Hosts
from agent_tunix.web.problems import Json, Problem, answer_problem

_ERRORS = {
    400: "The request is invalid, asks for something that is not supported, or exceeds the context",
    401: "The key is missing or not one of this server",
    403: "This server does not load adapters or weights from there",
    404: "There is no such model, adapter or path",
    408: "The request did not arrive in time",
    409: "The rollout of the key has ended, or the name is taken",
    413: "The body is too large",
    415: "The body is compressed",
    429: "Too many requests wait, or a limit of the rollout is reached",
    500: "The server failed; its log has the reason under the request's id",
    503: "The server has too many connections",
}
_KEY = "A key of the server's operator, or of a rollout"
_EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
_STREAM = {"text/event-stream": {"schema": _EVENT}}


def create_app(service: PolicyService) -> FastAPI:
    """Return the server of a policy as an ASGI app."""
    app = FastAPI(
        title="agent_tunix policy",
        version=__version__,
        description="A policy by OpenAI's API, with vLLM's parameters and routes for adapters.",
        redirect_slashes=False,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.policy = service
    _add_routes(app)
    answer = functools.partial(_answer, service)
    failures.add_handlers(app, answer)
    app.openapi = functools.partial(make_document, app, _KEY)  # type: ignore[method-assign]  # FastAPI's own way
    settings = service.settings
    # The middleware added last sees a request first.
    app.add_middleware(Bodies, settings.max_body_bytes, settings.body_timeout_s, _is_known)
    app.add_middleware(KeyGate, settings.api_keys, service.recorder)
    app.add_middleware(Hosts, (settings.host, *LOOPBACK, *settings.allowed_hosts))
    app.add_middleware(Envelope, answer, problem_of)
    return app


def _add_routes(app: FastAPI) -> None:
    routes: list[tuple[str, str, Callable[..., Any], Any]] = [
        ("POST", "/v1/chat/completions", create_chat_completion, answers.ReplyAnswer),
        ("POST", "/v1/completions", create_completion, answers.ReplyAnswer),
        ("GET", "/v1/models", list_models, answers.ServedModels),
        ("POST", "/v1/load_lora_adapter", load_adapter, answers.ServedModel),
        ("POST", "/v1/unload_lora_adapter", unload_adapter, answers.ServedModel),
        ("POST", "/v1/load_weights", load_weights, dict[str, int]),
        ("GET", "/health", check_health, dict[str, str]),
    ]
    for method, path, endpoint, answer in routes:
        responses: dict[int | str, dict[str, Any]] = {200: {"model": answer}}
        if path.endswith("completions"):
            responses[200]["content"] = _STREAM
        errors = error_responses(_ERRORS, _ERRORS)
        open_to_all: dict[str, Any] | None = {"security": []} if path in OPEN_PATHS else None
        app.add_api_route(
            path,
            endpoint,
            methods=[method],
            responses=responses | errors,
            response_model=None,
            openapi_extra=open_to_all,
        )
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    app.add_api_route(
        "/metrics", show_metrics, responses=text | error_responses(_ERRORS, _ERRORS), response_class=Response
    )


async def list_models(request: Request) -> Json:
    """Return the policy and its adapters."""
    service = service_of(request)
    name, context = service.settings.model, service.settings.max_context
    names = () if service.adapters is None else service.adapters.adapters
    models = [answers.model_of(name, None, context), *(answers.model_of(one, name, context) for one in names)]
    return Json({"object": "list", "data": models})


async def load_adapter(request: Request, body: parameters.LoadAdapterParameters) -> Json:
    """Load an adapter from a directory that the server's operator allowed."""
    service = service_of(request)
    host, settings = _host(service), service.settings
    directory = _find_directory(body.lora_path, settings.adapter_directories)
    if not settings.api_keys or directory is None:
        raise Problem(
            403,
            "adapter_not_allowed",
            "adapters are loaded only below a directory of --adapter-directory, by a server with keys",
            "lora_path",
        )
    if body.lora_name == settings.model or body.lora_name in host.adapters:
        raise Problem(
            409, "name_taken", f"there is a model {body.lora_name!r}; unload it, or take another name", "lora_name"
        )
    await in_thread(lambda: host.load_adapter(body.lora_name, directory))
    return Json(answers.model_of(body.lora_name, settings.model, settings.max_context))


async def unload_adapter(request: Request, body: parameters.UnloadAdapterParameters) -> Json:
    """Unload an adapter."""
    service = service_of(request)
    host, settings = _host(service), service.settings
    if not settings.api_keys or not settings.adapter_directories:
        raise Problem(403, "adapter_not_allowed", "this server's adapters do not change", "lora_name")
    if body.lora_name not in host.adapters:
        raise Problem(404, "model_not_found", f"there is no adapter {body.lora_name!r:.80}", "lora_name")
    await in_thread(lambda: host.unload_adapter(body.lora_name))
    return Json(answers.model_of(body.lora_name, settings.model, settings.max_context))


async def load_weights(request: Request, body: parameters.LoadWeightsParameters) -> Json:
    """Replace the policy's weights once the requests that are being answered have ended, and drop the adapters."""
    service = service_of(request)
    host, settings = service.adapters, service.settings
    directory = _find_directory(body.path, settings.adapter_directories)
    if not (settings.loads_weights and settings.api_keys) or directory is None or host is None:
        raise Problem(
            403,
            "weights_not_allowed",
            "weights are loaded only by a server with --load-weights and keys, below a directory of "
            "--adapter-directory",
            "path",
        )
    await in_thread(lambda: host.load_weights(directory, body.version).result())
    return Json({"version": body.version})


async def check_health() -> Json:
    """Say that the server runs."""
    return Json({"status": "ok"})


async def show_metrics(request: Request) -> Response:
    """Return counters in Prometheus' text format."""
    return Response(service_of(request).metrics.render(), media_type="text/plain; version=0.0.4")


def _find_directory(path: str, allowed: Sequence[str]) -> Path | None:
    """Return a directory, links followed; None if it is not below one of those that are allowed."""
    try:
        directory = Path(path).resolve()
    except (ValueError, OSError):  # no path of this system, such as one with a null character
        return None
    return directory if any(directory.is_relative_to(Path(one).resolve()) for one in allowed) else None


def _host(service: PolicyService) -> AdapterHost:
    if service.adapters is None:
        raise Problem(403, "adapter_not_allowed", "this server has no adapters", "lora_name")
    return service.adapters


def _answer(service: PolicyService, scope: Scope, problem: Problem) -> Response:
    service.metrics.errors.labels(problem.code).inc()
    return answer_problem(problem)


def _is_known(scope: Scope) -> bool:
    return True  # the gate has refused others
