"""HTTP requests to an engine, the errors that its answers mean, and the routes that all kinds share.

Codes of the errors: `engine_unavailable` (no answer, or one of a server that fails), `engine_unreachable` (no replica
answers for as long as a request may take), `engine_busy` (429), `engine_no_model` (it does not have the model that the
request names), `engine_refused` (4xx, or `success: false`), `engine_answer` (the answer contradicts its request or
itself), `engine_aborted` (it gave up the reply), `engine_other_model` and `engine_version` (the reply is of another
model, or of other weights).
"""

import contextlib
import json
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines.wire import EngineFacts
from agent_tunix.errors import ConfigError, EngineError, RequestRefusedError
from agent_tunix.proxies import is_loopback
from agent_tunix.visible_text import one_line

_CONNECT_S = 10.0
_MOST_CHARACTERS = 500
_SAMPLING = ("/v1/completions", "/generate")
_NO_MODEL = ("does not exist", "not loaded", "no model")


def open_client(url: str, api_key: str | None, timeout_s: float) -> httpx.AsyncClient:
    """Return a client of an engine. It uses no proxy for an engine on this machine.

    Raises:
        ConfigError: The URL, or a proxy of the environment, cannot be used.
    """
    if (logger := logging.getLogger("httpx")).level == logging.NOTSET:
        logger.setLevel(logging.WARNING)  # it logs a line for each request
    is_local, has_tls = is_loopback(url), url.startswith("https:")
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("it must begin with http:// or https://")
        return httpx.AsyncClient(
            base_url=url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            # A request on an idle connection is lost if the server closes it just then, and each request looks at all
            # idle ones for each of them. Replies take longer than connections.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=not is_local,
            # Without `trust_env`, the client ignores SSL_CERT_FILE.
            verify=ssl.create_default_context() if is_local and has_tls else has_tls,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise ConfigError(f"the engine {url} cannot be reached: {error}", code="invalid_request") from error


async def call(client: httpx.AsyncClient, path: str, body: Any = None) -> Any:
    """Post a body, or get a path without one, and return the answer: the data of JSON, or the text of anything else.

    Raises:
        EngineError: The engine refuses the request, or fails.
        httpx.RequestError: There is no answer, or half of one.
    """
    response = await client.request("GET" if body is None else "POST", path, json=body)
    status, text = response.status_code, response.text
    key = client.headers.get("Authorization", "").removeprefix("Bearer ")
    words = one_line(text.replace(key, "[key]") if key else text)[:_MOST_CHARACTERS]
    message = f"{str(client.base_url).rstrip('/')}{path} answered {status}: {words}"
    if status >= 500 or status == 408:
        raise EngineError(message, code="engine_unavailable")
    if status == 429:
        raise EngineError(message, code="engine_busy")
    if status == 404 and "Not Found" in text:
        message += "; the server has no such route: start it with the options that its recipe names"
    if path in _SAMPLING and status in (400, 404, 413, 422):
        if any(phrase in text for phrase in _NO_MODEL):
            raise EngineError(message, code="engine_no_model")
        raise RefusedByEngineError(message)
    if status >= 400:
        raise EngineError(message, code="engine_refused")
    if "json" not in response.headers.get("content-type", ""):
        return text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise EngineError(f"{message}: this is not JSON", code="engine_unavailable") from None
    if isinstance(data, dict) and (data.get("success") is False or data.get("error")):
        raise EngineError(message, code="engine_refused")
    return data


@contextlib.contextmanager
def reading(client: httpx.AsyncClient) -> Iterator[None]:
    """Raise EngineError where the block meets an answer of another form than it reads, or raises ValueError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"{client.base_url} answered what it must not: {type(error).__name__}: {error}",
            code=getattr(error, "code", "engine_answer"),
        ) from error


class RefusedByEngineError(EngineError, RequestRefusedError):
    """An engine refuses a value of a request for tokens, such as a prompt beyond its context."""

    code = "engine_refused"


class HttpWire:
    """The routes that all kinds of engines share; see `Wire`.

    Args:
        vocab_size: Number of the model's tokens; a reply with another one is an error. None: they are not checked.
    """

    kind: ClassVar[str] = ""
    _version_path: str | None = "/version"
    _adapters_path = "/v1"
    _owner: str | None = None

    def __init__(self, vocab_size: int | None = None) -> None:
        self.vocab_size = vocab_size

    async def describe(self, client: httpx.AsyncClient) -> EngineFacts:
        """Return what the engine tells of itself, once it is ready."""
        await call(client, "/health")
        answer = await call(client, "/v1/models")
        version = await call(client, self._version_path) if self._version_path else {"version": ""}
        with reading(client):
            models = sorted(answer["data"], key=lambda model: model.get("parent") is not None)
            if self._owner is not None and models[0]["owned_by"] != self._owner:
                raise ValueError(f"it is an engine of {models[0]['owned_by']!r:.80}, not of {self._owner}")
            names = tuple(str(model["id"]) for model in models)
            return EngineFacts(self.kind, str(version["version"]), names, models[0].get("max_model_len"))

    async def load_adapter(self, client: httpx.AsyncClient, name: str, directory: Path) -> None:
        """Let the engine sample with an adapter in PEFT's format, under a new name."""
        body = {"lora_name": name, "lora_path": str(directory)}
        await call(client, f"{self._adapters_path}/load_lora_adapter", body)

    async def unload_adapter(self, client: httpx.AsyncClient, name: str) -> None:
        """Let the engine forget an adapter."""
        await call(client, f"{self._adapters_path}/unload_lora_adapter", {"lora_name": name})
