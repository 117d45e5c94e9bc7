"""Settings of a judge's endpoint: model, requests and cost."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent_tunix.errors import RewardError
from agent_tunix.proxies import problem_with_proxies
from agent_tunix.rewards.judges.arguments import JudgeArguments

logger = logging.getLogger("agent_tunix.rewards")

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
STRUCTURES = ("auto", "json_schema", "json_object", "text")

# Parameters that have their own argument, and those that change the form of a reply.
_NOT_EXTRA = frozenset(
    {"model", "messages", "stream", "n", "temperature", "seed", "max_tokens", "max_completion_tokens"}
    | {"response_format", "tools", "functions"}
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in the currency of `max_cost`."""

    prompt: float
    completion: float

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of a request."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """Settings of a judge's endpoint.

    Attributes:
        model: Name of the model at the endpoint.
        base_url: URL of the endpoint without `/chat/completions`.
        api_key_env: Environment variable that holds the key; None: no key is sent.
        temperature: Temperature of the model's sampling.
        seed: Seed of the model's sampling, if the endpoint takes one.
        max_tokens: Maximum length of a reply in tokens.
        structured: Way to request a JSON verdict: `json_schema`, `json_object`, `text` (by the prompt alone), or
            `auto`, the first of these that the endpoint accepts.
        extra_body: Further parameters of the request.
        timeout_s: Time limit of one request.
        tries: Requests for one verdict, the first included, before a transient fault becomes an error.
        max_concurrency: Concurrent requests; None: the limit of other judges at the endpoint, or else 16.
        requests_per_minute: Maximum requests in any minute; None: no limit.
        tokens_per_minute: Maximum tokens in any minute, prompts and replies together; None: no limit.
        share_limits: True: judges with the same base URL and `api_key_env` share these three limits, and the strictest
            holds. False: the judge has its own limits, for a provider that limits each model separately.
        prices: Prices per million tokens; None: costs are unknown.
        max_cost: Maximum cost before the judge stops; None: no limit.
        max_requests: Maximum number of requests before the judge stops; None: no limit.
        cache: File of the cache; false for none. By default, a file in `AGENT_TUNIX_HOME`.
    """

    model: str
    base_url: str = OPENAI_URL
    api_key_env: str | None = None
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int = 1024
    structured: str = "auto"
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0
    tries: int = 6
    max_concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    share_limits: bool = True
    prices: Prices | None = None
    max_cost: float | None = None
    max_requests: int | None = None
    cache: Path | None = None

    def read_key(self) -> str | None:
        """Return the key from the environment; it is stored nowhere else.

        Raises:
            RewardError: The variable is not set.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise RewardError(
                f"the environment variable {self.api_key_env} is not set; it must contain the key for "
                f"{self.base_url}; export it, put it into .env, or set `api_key_env` to another variable",
                code="missing_api_key",
            )
        if not (key.isascii() and key.isprintable()):
            raise RewardError(
                f"the key in {self.api_key_env} has characters that are not allowed in an HTTP header",
                code="invalid_api_key",
            )
        return key

    def check_proxies(self) -> None:
        """Raise RewardError if the environment sets a proxy that requests cannot use."""
        if problem := problem_with_proxies(self.base_url):
            raise RewardError(problem, code="unusable_proxy")


def read_settings(arguments: JudgeArguments) -> EndpointSettings:
    """Take the endpoint's settings from a judge's arguments.

    Raises:
        RewardError: An argument is missing or malformed.
    """
    base_url = _read_url(arguments)
    settings = EndpointSettings(
        model=arguments.require("model", arguments.take_text("model"), "{model: gpt-4o-mini}"),
        base_url=base_url,
        api_key_env=arguments.take_text("api_key_env", OPENAI_KEY if _is_openai(base_url) else None),
        temperature=arguments.take_number("temperature", 0.0, 0.0, 2.0),
        seed=arguments.take_count("seed", 0, least=0),
        max_tokens=arguments.take_count("max_tokens", 1024),
        structured=arguments.take_text("structured", choices=STRUCTURES) or "auto",
        extra_body=_read_extra_body(arguments),
        timeout_s=arguments.take_number("timeout_s", 60.0, 0.001),
        tries=arguments.take_count("tries", 6),
        max_concurrency=arguments.take_optional_count("max_concurrency"),
        requests_per_minute=arguments.take_optional_count("requests_per_minute"),
        tokens_per_minute=arguments.take_optional_count("tokens_per_minute"),
        share_limits=arguments.take_flag("share_limits", True),
        prices=_read_prices(arguments),
        max_cost=arguments.take_optional_number("max_cost", 0.0),
        max_requests=arguments.take_optional_count("max_requests", least=0),
        cache=_read_cache(arguments),
    )
    if settings.max_cost is not None and settings.prices is None:
        raise RewardError(
            f"judge {arguments.judge!r}: `max_cost` requires `prices`, per million tokens: "
            "{prices: {prompt: 0.15, completion: 0.6}}",
            code="missing_argument",
        )
    parts = urlsplit(base_url)
    if settings.api_key_env and parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        logger.warning("judge %r sends its key unencrypted to %s", arguments.judge, parts.netloc)
    return settings


def _read_url(arguments: JudgeArguments) -> str:
    url = (arguments.take_text("base_url") or OPENAI_URL).strip().rstrip("/").removesuffix("/chat/completions")
    required = "a URL such as https://api.openai.com/v1"
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise arguments.refusal("base_url", url, required) from None
    if "@" in parts.netloc or parts.query or parts.fragment:
        # The message does not repeat the URL, because such a part may be secret.
        raise RewardError(
            f"judge {arguments.judge!r}: `base_url` must be without user, query and fragment; "
            "give a key by setting `api_key_env` to its environment variable",
            code="invalid_argument",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise arguments.refusal("base_url", url, required)
    return url


def _is_openai(url: str) -> bool:
    return urlsplit(url).hostname == urlsplit(OPENAI_URL).hostname and url.startswith("https:")


def _read_extra_body(arguments: JudgeArguments) -> dict[str, Any]:
    body = arguments.take_mapping("extra_body")
    for name in body:
        if name in _NOT_EXTRA:
            raise RewardError(
                f"judge {arguments.judge!r}: `extra_body` must not contain {name!r}; remove it", code="invalid_argument"
            )
    return body


def _read_prices(arguments: JudgeArguments) -> Prices | None:
    given = arguments.take_mapping("prices")
    if not given:
        return None
    prices = JudgeArguments(f"{arguments.judge}.prices", given)
    try:
        if set(given) != {"prompt", "completion"}:
            raise RewardError("two keys are needed")
        return Prices(prices.take_number("prompt", 0.0, 0.0), prices.take_number("completion", 0.0, 0.0))
    except RewardError:
        required = "the prices of a million tokens, as in {prompt: 0.15, completion: 0.6}"
        raise arguments.refusal("prices", given, required) from None


def _read_cache(arguments: JudgeArguments) -> Path | None:
    value = arguments.take("cache")
    if value is None or value is True:
        return default_cache()
    if value is False:
        return None
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise arguments.refusal("cache", value, "true, false or the path of a file")
    return Path(value).expanduser().absolute()


def default_cache() -> Path:
    """Return `judge_cache.sqlite` in the directory `AGENT_TUNIX_HOME`, by default `~/.agent_tunix`."""
    home = os.environ.get("AGENT_TUNIX_HOME")
    return (Path(home) if home else Path.home() / ".agent_tunix").absolute() / "judge_cache.sqlite"
