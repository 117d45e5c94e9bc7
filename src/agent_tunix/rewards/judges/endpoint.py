"""Requests to an OpenAI-compatible endpoint, with retries.

Rate limits (429), server errors (5xx) and lost connections are retried after a random exponential back-off of 1 to 30
s, or after `Retry-After` if that is longer; the log says so. Timeouts, untrusted certificates and permanent errors are
not retried. After an endpoint has refused a parameter, requests leave it out. Requests to this machine use no proxy.
"""

import asyncio
import email.utils
import json
import logging
import math
import os
import ssl
import time
from typing import Annotated, Any

import openai
import tenacity
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from agent_tunix.errors import RewardError
from agent_tunix.proxies import describe_proxy, is_loopback
from agent_tunix.rewards.judges import OPENAI_KEY
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.faults import (
    JudgeFault,
    MalformedVerdict,
    SlowEndpoint,
    TransientFault,
    UnsupportedParameter,
)
from agent_tunix.rewards.judges.limits import JudgeBudget, Pool, Timing
from agent_tunix.rewards.judges.prompts import JudgeQuestion
from agent_tunix.rewards.judges.settings import EndpointSettings

logger = logging.getLogger("agent_tunix.rewards")

BYTES_A_TOKEN = 3  # low, so that estimates are high
CONNECT_S = 10.0
LONGEST_WAIT_S = 120.0
# Seconds without another line about retries of the same judge.
_QUIET_S = 10.0
SHORTEST_KEY = 8  # shorter ones are placeholders, such as the `x` that some local servers require

_TRANSIENT = frozenset({408, 409, 425, 429})


class _TokenDetails(BaseModel):
    cached_tokens: NonNegativeInt = 0


class Usage(BaseModel):
    """Tokens of a reply, as the endpoint reports them."""

    prompt_tokens: NonNegativeInt
    completion_tokens: NonNegativeInt
    prompt_tokens_details: _TokenDetails | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


_NOTHING = Usage(prompt_tokens=0, completion_tokens=0)


class ChatAnswer(BaseModel):
    """Parts of an endpoint's answer that a judge reads. A malformed `usage` is no fault."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Any = None


class Endpoint:
    """Client of an endpoint and its model.

    `pool` has the limits that judges share. The budget of `settings` is checked before every request.
    """

    def __init__(self, settings: EndpointSettings, pool: Pool, timing: Timing) -> None:
        self.settings = settings
        self._pool = pool
        self._budget = JudgeBudget(settings.max_requests, settings.max_cost)
        self._timing = timing
        self._place = f"{settings.base_url}{describe_proxy(settings.base_url)}"
        self._quiet_until = -math.inf
        # Optional parameters that the endpoint has refused. Of `response_format`, it is the type.
        self._refused: set[str] = set()

    def open(self) -> openai.AsyncOpenAI:
        """Return a client, which the caller closes.

        Raises:
            RewardError: The key is not set, or the environment sets a proxy that requests cannot use.
        """
        url, key = self.settings.base_url, self.settings.read_key()
        for name in ("httpx", "httpx2"):  # they log a line for each request
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        is_local, has_tls = is_loopback(url), url.startswith("https:")
        # Without `trust_env`, which includes the proxies, the client ignores SSL_CERT_FILE.
        verify = ssl.create_default_context() if is_local and has_tls else has_tls
        try:
            http_client = openai.DefaultAsyncHttpxClient(trust_env=not is_local, verify=verify, follow_redirects=False)
        except (ValueError, ImportError) as error:
            raise RewardError(
                f"a proxy of the environment cannot be used ({error}); unset or correct it", code="unreachable_server"
            ) from error
        # `_post` limits the whole request. Without a key, it sends no header with this placeholder.
        timeout = openai.Timeout(None, connect=CONNECT_S)
        return openai.AsyncOpenAI(
            api_key=key or "none", base_url=url, timeout=timeout, max_retries=0, http_client=http_client
        )

    def identify(self) -> dict[str, Any]:
        """Return nothing: the settings name the endpoint and its model."""
        return {}

    async def ask(self, client: openai.AsyncOpenAI, question: JudgeQuestion[Any], seed: int, receipt: Receipt) -> str:
        """Ask until there is a reply, and return its text. The receipt is the account that the requests are added to.

        Raises:
            JudgeFault: There is no reply.
        """
        retrying = tenacity.AsyncRetrying(
            sleep=self._timing.sleep,
            before_sleep=self._log_retry,
            stop=tenacity.stop_after_attempt(self.settings.tries),
            wait=_wait,
            retry=tenacity.retry_if_exception_type(TransientFault),
            reraise=True,
        )
        while True:
            try:
                return await retrying(self._ask_once, client, question, seed, receipt)
            except UnsupportedParameter as fault:
                if fault.parameter in ("seed", "temperature") and fault.parameter not in self._refused:
                    logger.warning(
                        "%s at %s does not support `%s`, so its verdicts may vary",
                        self.settings.model,
                        self.settings.base_url,
                        fault.parameter,
                    )
                self._refused.add(fault.parameter)
            except TransientFault as fault:
                tries = f" after {self.settings.tries} tries" if self.settings.tries > 1 else ""
                raise JudgeFault(f"{fault}{tries}") from None

    def _log_retry(self, state: tenacity.RetryCallState) -> None:
        """Log that a request is tried again, but not for every request: an endpoint that is down fails many."""
        now = self._timing.clock()
        if now < self._quiet_until:
            return
        self._quiet_until = now + _QUIET_S
        logger.warning(
            "the judge %s is tried again in %.0f s (try %d of %d failed): %s",
            self.settings.model,
            state.next_action.sleep if state.next_action else 0,
            state.attempt_number,
            self.settings.tries,
            state.outcome.exception() if state.outcome else "",
        )

    async def _ask_once(
        self, client: openai.AsyncOpenAI, question: JudgeQuestion[Any], seed: int, receipt: Receipt
    ) -> str:
        estimate = estimate_usage(question, self.settings.max_tokens)
        reserved = self._cost(estimate)
        async with self._pool.gate:
            self._budget.reserve(reserved)
            used = _NOTHING
            try:
                slot = await self._pool.limiter.acquire(estimate.prompt_tokens + estimate.completion_tokens)
                receipt.requests += 1
                started = time.perf_counter()
                used = estimate  # a request that is given up may still be billed
                try:
                    answer = await self._post(client, self._body(question, seed))
                except JudgeFault as fault:
                    used = estimate if fault.may_be_billed else _NOTHING
                    raise
                receipt.latency_s += time.perf_counter() - started
                used = _usage_of(answer, question)
                slot.tokens = used.prompt_tokens + used.completion_tokens
                return _reply_of(answer)
            finally:
                cost = self._cost(used)
                receipt.prompt_tokens += used.prompt_tokens
                receipt.completion_tokens += used.completion_tokens
                receipt.cached_tokens += used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details else 0
                receipt.cost += cost
                self._budget.settle(reserved, cost)

    def _cost(self, usage: Usage) -> float:
        return self.settings.cost(usage.prompt_tokens, usage.completion_tokens)

    def _body(self, question: JudgeQuestion[Any], seed: int) -> dict[str, Any]:
        settings = self.settings
        optional = {"temperature": settings.temperature, "seed": seed}
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        body = {"model": settings.model, "messages": list(question.messages), limit: settings.max_tokens}
        body |= {name: value for name, value in optional.items() if name not in self._refused}
        structure = settings.structured
        if structure == "auto":
            structure = next(name for name in ("json_schema", "json_object", "text") if name not in self._refused)
        if question.schema is not None and structure == "json_schema":
            json_schema = {"name": "verdict", "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        elif question.schema is not None and structure == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    async def _post(self, client: openai.AsyncOpenAI, body: dict[str, Any]) -> ChatAnswer:
        variable = self.settings.api_key_env
        # The client reads the organisation and the project from the environment; they belong to OpenAI's own key.
        foreign = () if variable == OPENAI_KEY else ("OpenAI-Organization", "OpenAI-Project")
        headers = dict.fromkeys((*foreign, *(() if variable else ("Authorization",))), openai.Omit())
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                response = await client.chat.completions.with_raw_response.create(
                    **body, extra_body=dict(self.settings.extra_body), extra_headers=headers
                )
        except TimeoutError:
            raise SlowEndpoint(f"the judge took longer than {self.settings.timeout_s:g} s (timeout_s)") from None
        except openai.APIStatusError as error:
            raise self._refusal(error, body) from None
        except openai.APIConnectionError as error:
            raise self._lost_connection(error.__cause__ or error) from None
        return _read_answer(self._without_key(response.text))

    def _lost_connection(self, error: BaseException) -> JudgeFault:
        kind = type(error).__name__
        reason = self._without_key(shorten(f"{kind}: {error}".rstrip(": ")))
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            return JudgeFault(
                f"the certificate of {self._place} is not trusted: {reason}; set SSL_CERT_FILE to the certificates of "
                "its authority, or correct base_url"
            )
        was_sent = "Connect" not in kind and "Proxy" not in kind
        return TransientFault(f"the connection to {self._place} failed: {reason}", may_be_billed=was_sent)

    def _refusal(self, error: openai.APIStatusError, body: dict[str, Any]) -> JudgeFault:
        """Return the fault that the status of the answer to a request means."""
        status, message = error.status_code, error.response.text
        if isinstance(error.body, dict):
            message = str(error.body.get("message") or message)
        message = shorten(self._without_key(message))
        detail = f"{self._place} answered {status}: {message}"
        if error.code == "insufficient_quota":
            return JudgeFault(detail)
        if status in _TRANSIENT or status >= 500:
            wait_s = retry_after(error.response.headers.get("retry-after", ""))
            if wait_s is not None and wait_s > LONGEST_WAIT_S:
                return JudgeFault(f"{detail} (Retry-After: {wait_s:g} s, above the limit of {LONGEST_WAIT_S:g} s)")
            return TransientFault(detail, wait_s)
        if status in (400, 404, 415, 422) and (refused := self._refused_parameter(f"{error.param} {message}", body)):
            return UnsupportedParameter(detail, refused)
        if status == 401 and self.settings.api_key_env is None:
            detail += " (no key was sent; set `api_key_env` to its environment variable)"
        return JudgeFault(detail)

    def _refused_parameter(self, text: str, body: dict[str, Any]) -> str | None:
        """Return the optional parameter of a request that an error is about; None if there is none."""
        text = text.casefold()
        is_about_format = any(word in text for word in ("response_format", "json_schema", "json_object", "structured"))
        if is_about_format and "response_format" in body and self.settings.structured == "auto":
            return str(body["response_format"]["type"])
        if "max_completion_tokens" in text and "max_tokens" in body:
            return "max_tokens"
        return next((name for name in ("temperature", "seed") if name in text and name in body), None)

    def _without_key(self, text: str) -> str:
        """Return the text without the key, which an endpoint may repeat. It must not get into logs and caches."""
        key = os.environ.get(self.settings.api_key_env or "", "").strip()
        return text.replace(key, "[key]") if len(key) >= SHORTEST_KEY else text


def _wait(state: tenacity.RetryCallState) -> float:
    """Return a random delay: 1 s to at most 2, 4, 8, … 30 s, and no less than the endpoint asked for."""
    back_off = tenacity.wait_random_exponential(multiplier=2, min=1, max=30)(state)
    fault = state.outcome.exception() if state.outcome else None
    return max(back_off, (fault.retry_after_s or 0.0) if isinstance(fault, TransientFault) else 0.0)


def retry_after(value: str) -> float | None:
    """Return the seconds of a header `Retry-After`, which holds seconds or a date."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def estimate_usage(question: JudgeQuestion[Any], num_tokens: int) -> Usage:
    """Return an upper estimate of a request's usage, from the length of its text and the tokens of the reply."""
    size = sum(len(message["content"].encode("utf-8", "replace")) for message in question.messages)
    size += len(json.dumps(question.schema)) if question.schema else 0
    return Usage(prompt_tokens=size // BYTES_A_TOKEN + 8 * len(question.messages), completion_tokens=num_tokens)


def _usage_of(answer: ChatAnswer, question: JudgeQuestion[Any]) -> Usage:
    """Return the usage of a reply as the endpoint reports it, or else an estimate."""
    try:
        return Usage.model_validate(answer.usage)
    except ValidationError:
        return estimate_usage(question, len(answer.model_dump_json()) // BYTES_A_TOKEN)


def _read_answer(text: str) -> ChatAnswer:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise TransientFault(f"the endpoint's answer is not JSON: {shorten(text)}") from None
    if isinstance(data, dict) and "error" in data and not data.get("choices"):
        raise TransientFault(f"the endpoint answered with an error: {shorten(str(data['error']))}")
    try:
        return ChatAnswer.model_validate(data)
    except ValidationError:
        raise MalformedVerdict(f"the endpoint's answer has no choices: {shorten(text)}") from None


def _reply_of(answer: ChatAnswer) -> str:
    """Return the text of the reply.

    Raises:
        JudgeFault: The model refused, or its reply was cut off or withheld.
        MalformedVerdict: The reply is empty.
    """
    choice = answer.choices[0]
    if choice.message.refusal:
        raise JudgeFault(f"the judge refused: {shorten(choice.message.refusal)}")
    if choice.finish_reason == "length":
        raise JudgeFault("the judge's reply was cut off; raise `max_tokens`")
    if choice.finish_reason == "content_filter":
        raise JudgeFault("the endpoint's content filter withheld the reply")
    if not choice.message.content or not choice.message.content.strip():
        raise MalformedVerdict("the judge's reply is empty")
    return choice.message.content


def shorten(text: str) -> str:
    """Return at most 300 characters on one line."""
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    return text if len(text) <= 300 else text[:300] + "…"
