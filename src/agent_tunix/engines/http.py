"""HTTP requests to an engine, and the errors that its answers mean.

The codes of these errors:

- `engine_unavailable`: there is no answer, or one of a server that fails (5xx, no JSON). Another replica may answer.
- `engine_unreachable`: no replica has answered for the time that a request may take.
- `engine_busy`: the engine has too many requests (429). It may answer later.
- `engine_no_model`: the engine does not have the model that the request names.
- `engine_refused`: the request cannot be answered (4xx).
- `engine_answer`: the answer contradicts the request or itself.
- `engine_aborted`: the engine gave up the reply.
- `engine_other_model`, `engine_version`: the reply is of another model, or of other weights.
"""

import json
import logging
import ssl
from typing import Any

import httpx

from agent_tunix.errors import AgentTunixError, ConfigError, EngineError
from agent_tunix.proxies import is_loopback
from agent_tunix.visible_text import one_line

_CONNECT_S = 10.0
# Servers close idle connections after 5 s or more, and a request on a connection that is being closed is lost.
_IDLE_S = 2.0
_MOST_CHARACTERS = 500
_SAMPLING = ("/v1/completions", "/generate")
_NO_MODEL = ("does not exist", "not loaded", "no model")


def open_client(url: str, api_key: str | None, timeout_s: float) -> httpx.AsyncClient:
    """Return a client of an engine. It uses no proxy for an engine on this machine.

    Raises:
        ConfigError: The URL, or a proxy of the environment, cannot be used.
    """
    logger = logging.getLogger("httpx")  # it logs a line for each request
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    is_local, has_tls = is_loopback(url), url.startswith("https:")
    try:
        if not url.startswith(("http://", "https://")):
            raise ValueError("it must begin with http:// or https://")
        return httpx.AsyncClient(
            base_url=url.rstrip("/").removesuffix("/v1"),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S),
            trust_env=not is_local,
            # Without `trust_env`, the client ignores SSL_CERT_FILE.
            verify=ssl.create_default_context() if is_local and has_tls else has_tls,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise ConfigError(f"the engine {url} cannot be reached: {error}", code="invalid_request") from error


async def call(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    body: Any = None,
    *,
    refusal: type[AgentTunixError] = EngineError,
) -> Any:
    """Send a request and return the JSON of its answer; the text of an answer that is none, such as `Success: …`.

    Args:
        client: Client of the engine.
        method: HTTP method.
        path: Path, with its query.
        body: JSON object to send; None for none.
        refusal: Error for a request whose values the engine refuses.

    Raises:
        EngineError: The engine refuses the request, or fails; see the codes of this module.
        httpx.RequestError: There is no answer, or half of one.
    """
    response = await client.request(method, path, json=body)
    status, text = response.status_code, response.text
    if status < 400:
        return _read(client, path, text, response.headers.get("content-type", ""))
    message = f"{client.base_url}{path.lstrip('/')} answered {status}: {_words(client, text)}"
    if status == 429:
        raise EngineError(message, code="engine_busy")
    if status >= 500 or status == 408:
        raise EngineError(message, code="engine_unavailable")
    if path in _SAMPLING and status in (400, 404) and any(words in text for words in _NO_MODEL):
        raise EngineError(message, code="engine_no_model")
    if status in (400, 413, 422) and refusal is not EngineError:
        raise refusal(message)
    raise EngineError(message, code="engine_refused")


def _read(client: httpx.AsyncClient, path: str, text: str, content_type: str) -> Any:
    """Return the data of an answer; raise EngineError if it says that it is a failure."""
    if "json" not in content_type:
        return text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise EngineError(
            f"{client.base_url}{path.lstrip('/')} answered with broken JSON: {_words(client, text)}",
            code="engine_unavailable",
        ) from None
    if isinstance(data, dict) and (data.get("success") is False or data.get("error")):
        raise EngineError(
            f"{client.base_url}{path.lstrip('/')} answered with a failure: {_words(client, text)}",
            code="engine_refused",
        )
    return data


def _words(client: httpx.AsyncClient, text: str) -> str:
    """Return what an engine says, on one line, bounded, and without the key, which it may repeat."""
    key = client.headers.get("Authorization", "").removeprefix("Bearer ")
    text = one_line(text.replace(key, "[key]") if key else text)
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"
