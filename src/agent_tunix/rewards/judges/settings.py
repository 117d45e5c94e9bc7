"""Settings of a judge: its model, requests and cost."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from agent_tunix.errors import RewardError
from agent_tunix.rewards.configured.arguments import Amount, Count, Index, RewardArguments, Seconds, Text
from agent_tunix.rewards.judges import MAX_CONCURRENCY, OPENAI_KEY, OPENAI_URL, is_local_model

# Parameters that have their own argument, and those that change the form of a reply.
_NOT_EXTRA = frozenset(
    {"model", "messages", "stream", "n", "temperature", "seed", "max_tokens", "max_completion_tokens"}
    | {"response_format", "tools", "functions"}
)

# Arguments that have a meaning only at an endpoint, and those that have one only for a model on this machine.
_OF_ENDPOINTS = frozenset(
    {"api_key_env", "timeout_s", "tries", "requests_per_minute", "tokens_per_minute", "share_limits"}
    | {"prices", "max_cost"}
)
_OF_LOCAL_MODELS = frozenset({"quantization", "dtype", "max_prompt_tokens"})


class Prices(RewardArguments):
    """Prices of a million tokens, in the currency of `max_cost`."""

    prompt: Amount
    completion: Amount


def _check_url(url: str) -> str:
    url = url.strip().rstrip("/").removesuffix("/chat/completions")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or "@" in parts.netloc or parts.query or parts.fragment:
        # The message does not repeat the URL, because a part of it may be secret.
        raise ValueError(
            "it must be a URL such as https://api.openai.com/v1, without user, query and fragment; give a key by "
            "setting `api_key_env` to its environment variable"
        )
    return url


def _check_extra_body(body: dict[str, Any]) -> dict[str, Any]:
    if taken := sorted(_NOT_EXTRA & set(body)):
        raise ValueError(f"it must not contain {', '.join(taken)}; use the argument of this name, or remove it")
    return body


def _cache_file(value: object) -> Path | None:
    if value is True:
        return default_cache()
    if value is False:
        return None
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ValueError(f"it must be true, false or the path of a file, not {value!r}")
    return Path(value).expanduser().absolute()


def default_cache() -> Path:
    """Return `judge_cache.sqlite` in the directory `AGENT_TUNIX_HOME`, by default `~/.agent_tunix`."""
    home = os.environ.get("AGENT_TUNIX_HOME")
    return (Path(home) if home else Path.home() / ".agent_tunix").absolute() / "judge_cache.sqlite"


def _default_url(values: dict[str, Any]) -> str:
    return "" if is_local_model(values.get("model", "")) else OPENAI_URL


def _default_key(values: dict[str, Any]) -> str | None:
    url = values.get("base_url", "")
    is_openai = url.startswith("https:") and urlsplit(url).hostname == urlsplit(OPENAI_URL).hostname
    return OPENAI_KEY if is_openai else None


class EndpointSettings(RewardArguments):
    """Settings of a judge's model, which is at an endpoint or on the devices of this machine.

    Attributes:
        model: Name of the model at the endpoint. Without `base_url`, a path, an address on a hub (`hf://owner/name`) or
            a name of `conf/model` is a model that this process samples itself, on the run's mesh.
        base_url: URL of the endpoint without `/chat/completions`; by default that of OpenAI, and none for a model that
            this process samples.
        quantization: Storage of the weights of a model on this machine: `int8`, `nf4`, or None for the compute type.
        dtype: Compute type of such a model: `auto`, `float32` or `bfloat16`.
        max_prompt_tokens: Longest prompt of such a model in tokens; a longer one is an error of its completion.
        api_key_env: Environment variable that holds the key; None: no key is sent.
        temperature: Temperature of the model's sampling.
        seed: Seed of the model's sampling, if the endpoint takes one.
        max_tokens: Maximum length of a reply in tokens.
        structured: Way to request a JSON verdict: `json_schema`, `json_object`, `text` (by the prompt alone), or
            `auto`, the first of these that the endpoint accepts.
        extra_body: Further parameters of the request; for a model on this machine only `chat_template_kwargs`.
        timeout_s: Time limit of one request.
        tries: Requests for one verdict, the first included, before a transient fault becomes an error.
        max_concurrency: Concurrent requests; None: the limit of other judges at the endpoint, or else 16. For a model
            on this machine, the number of questions that are sampled at once.
        requests_per_minute: Maximum requests in any minute; None: no limit.
        tokens_per_minute: Maximum tokens in any minute, prompts and replies together; None: no limit.
        share_limits: True: judges with the same base URL and `api_key_env` share these three limits, and the strictest
            holds. False: the judge has its own limits, for a provider that limits each model separately.
        prices: Prices per million tokens; None: costs are unknown.
        max_cost: Maximum cost before the judge stops; None: no limit.
        max_requests: Maximum number of requests before the judge stops; None: no limit.
        cache: File of the cache; false for none. By default, a file in `AGENT_TUNIX_HOME`.
    """

    model: Text
    base_url: Annotated[str, AfterValidator(_check_url)] = Field(default_factory=_default_url)
    quantization: Literal["int8", "nf4"] | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_prompt_tokens: Count = 2048
    api_key_env: Text | None = Field(default_factory=_default_key)
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Index = 0
    max_tokens: Count = 1024
    structured: Literal["auto", "json_schema", "json_object", "text"] = "auto"
    extra_body: Annotated[dict[str, Any], AfterValidator(_check_extra_body)] = Field(default_factory=dict)
    timeout_s: Seconds = 60.0
    tries: Count = 6
    max_concurrency: Count | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    share_limits: bool = True
    prices: Prices | None = None
    max_cost: Amount | None = None
    max_requests: Index | None = None
    cache: Annotated[Path | None, BeforeValidator(_cache_file)] = Field(default_factory=default_cache)

    @model_validator(mode="after")
    def _check_cost(self) -> Self:
        if self.max_cost is not None and self.prices is None:
            raise ValueError(
                "`max_cost` requires `prices`, per million tokens: {prices: {prompt: 0.15, completion: 0.6}}"
            )
        return self

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if unused := sorted(self.model_fields_set & (_OF_ENDPOINTS if self.is_local else _OF_LOCAL_MODELS)):
            place = "an endpoint" if self.is_local else "a model that this process samples"
            change = "set `base_url`" if self.is_local else "remove `base_url`, or give a path or a name of conf/model"
            raise ValueError(
                f"{', '.join(unused)} requires {place}, which {self.model!r} is not; remove it, or {change}"
            )
        if self.is_local and (
            self.structured not in ("auto", "text") or set(self.extra_body) - {"chat_template_kwargs"}
        ):
            raise ValueError(
                f"{self.model!r} is sampled by this process, whose replies follow no schema: `structured` must be auto "
                "or text, and `extra_body` may contain only chat_template_kwargs"
            )
        return self

    @property
    def is_local(self) -> bool:
        """True if this process samples the model itself."""
        return not self.base_url

    @property
    def num_rows(self) -> int:
        """Number of questions for a model in this process that are sampled at once."""
        return self.max_concurrency or MAX_CONCURRENCY

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of tokens; 0 if prices are unknown."""
        if self.prices is None:
            return 0.0
        return (prompt_tokens * self.prices.prompt + completion_tokens * self.prices.completion) / 1e6

    def read_key(self) -> str | None:
        """Return the key from the environment; it is stored nowhere else.

        Raises:
            RewardError: The variable is not set (`missing_api_key`), or no HTTP header can contain its value
                (`invalid_api_key`).
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise RewardError(
                f"the environment variable {self.api_key_env} is not set; it must contain the key for "
                f"{self.base_url}; export it, put it into .env, or set `api_key_env` to another variable",
                code="invalid_judge",
            )
        if not (key.isascii() and key.isprintable()):
            raise RewardError(
                f"the key in {self.api_key_env} has characters that are not allowed in an HTTP header",
                code="invalid_judge",
            )
        return key
