"""Requests to an OpenAI-compatible endpoint, with retries.

Rate limits (429), server errors (5xx) and lost connections are retried after a random exponential back-off of 1 to 30
s, or after `Retry-After` if that is longer; the log says so. Timeouts, untrusted certificates and permanent errors are
not retried. After an endpoint has refused a parameter, requests leave it out. Requests to this machine use no proxy.
"""

import asyncio
import contextlib
import dataclasses
import json
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import tenacity

from agent_tunix.proxies import describe_proxy, is_loopback
from agent_tunix.rewards.judges.accounts import Receipt, Usage
from agent_tunix.rewards.judges.answers import (
    error_of,
    estimate_usage,
    reply_of,
    retry_after,
    shorten,
    unsupported_parameter,
    usage_of,
)
from agent_tunix.rewards.judges.faults import (
    JudgeFault,
    MalformedVerdict,
    SlowEndpoint,
    TransientFault,
    UnsentRequest,
    UnsupportedParameter,
)
from agent_tunix.rewards.judges.limits import JudgeBudget, Timing
from agent_tunix.rewards.judges.pools import Pool
from agent_tunix.rewards.judges.prompts import Message
from agent_tunix.rewards.judges.settings import EndpointSettings

logger = logging.getLogger("agent_tunix.rewards")

LONGEST_ANSWER_BYTES = 1_000_000
LONGEST_WAIT_S = 120.0
# Seconds without another line about retries of the same judge.
_QUIET_S = 10.0
SHORTEST_KEY = 8  # shorter ones are placeholders, such as the `x` that some local servers require

_TRANSIENT = frozenset({408, 409, 425, 429})
_STRUCTURES = ("json_schema", "json_object", "text")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Parameters that an endpoint accepts, as far as known."""

    structure: str
    seed: bool = True
    temperature: bool = True
    max_tokens_name: str = "max_tokens"

    def without(self, parameter: str) -> "Dialect":
        """Return the dialect that avoids a parameter."""
        if parameter == "response_format":
            following = _STRUCTURES[min(_STRUCTURES.index(self.structure) + 1, len(_STRUCTURES) - 1)]
            return dataclasses.replace(self, structure=following)
        if parameter == "max_tokens":
            return dataclasses.replace(self, max_tokens_name="max_completion_tokens")
        return dataclasses.replace(
            self, seed=self.seed and parameter != "seed", temperature=self.temperature and parameter != "temperature"
        )


class Endpoint:
    """Client of an endpoint and its model.

    `pool` has the limits that judges share. `budget` is checked before every request.
    """

    def __init__(self, settings: EndpointSettings, pool: Pool, budget: JudgeBudget, timing: Timing) -> None:
        self.settings = settings
        self._pool = pool
        self._budget = budget
        self._timing = timing
        self._where = f"{settings.base_url}{describe_proxy(settings.base_url)}"
        self._quiet_until = -math.inf
        self._dialect = Dialect("json_schema" if settings.structured == "auto" else settings.structured)

    def open(self) -> httpx.AsyncClient:
        """Return a client for one event loop; the caller closes it."""
        key = self.settings.read_key()
        self.settings.check_proxies()
        client_log = logging.getLogger("httpx")
        if client_log.level == logging.NOTSET:
            client_log.setLevel(logging.WARNING)  # otherwise it logs a line for each request
        limits = httpx.Limits(max_connections=None)  # the pool's gate limits them
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
        timeout = httpx.Timeout(self.settings.timeout_s, connect=min(10.0, self.settings.timeout_s), pool=None)
        # Without TLS there is nothing to verify, and reading the certificates is slow.
        verify = httpx.create_ssl_context() if self.settings.base_url.startswith("https:") else False
        return httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            limits=limits,
            follow_redirects=False,
            verify=verify,
            trust_env=not is_loopback(self.settings.base_url),
        )

    async def ask(
        self,
        client: httpx.AsyncClient,
        messages: Sequence[Message],
        schema: dict[str, Any] | None,
        receipt: Receipt,
        seed: int,
    ) -> str:
        """Ask until there is a reply, and return its text.

        Args:
            client: Client from `open`.
            messages: The conversation.
            schema: JSON schema of the reply, enforced if the endpoint can; None: a text.
            receipt: Account that the requests are added to.
            seed: Seed of the model's sampling.

        Raises:
            JudgeFault: There is no reply.
        """

        async def attempt() -> str:
            async with self._pool.gate:
                return await self._ask_once(client, messages, schema, receipt, seed)

        retrying = tenacity.AsyncRetrying(
            sleep=self._timing.sleep,
            before_sleep=self._tell_of_retry,
            stop=tenacity.stop_after_attempt(self.settings.tries),
            wait=_wait,
            retry=tenacity.retry_if_exception_type(TransientFault),
            reraise=True,
        )
        while True:
            before = self._dialect
            try:
                return await retrying(attempt)
            except UnsupportedParameter as fault:
                self._do_without(before, fault)
            except TransientFault as fault:
                tries = f" after {self.settings.tries} tries" if self.settings.tries > 1 else ""
                raise JudgeFault(f"{fault}{tries}") from None

    def _tell_of_retry(self, state: tenacity.RetryCallState) -> None:
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

    def _do_without(self, before: Dialect, fault: UnsupportedParameter) -> None:
        following = self._dialect.without(fault.parameter) if self._dialect == before else self._dialect
        is_fixed = fault.parameter == "response_format" and self.settings.structured != "auto"
        if following == before or is_fixed:
            raise JudgeFault(str(fault))
        if following != self._dialect and fault.parameter in ("seed", "temperature"):
            logger.warning(
                "%s at %s does not support `%s`, so its verdicts may vary", self.settings.model, self.settings.base_url,
                fault.parameter,
            )  # fmt: skip
        self._dialect = following

    async def _ask_once(
        self,
        client: httpx.AsyncClient,
        messages: Sequence[Message],
        schema: dict[str, Any] | None,
        receipt: Receipt,
        seed: int,
    ) -> str:
        estimate = estimate_usage(messages, schema, self.settings.max_tokens)
        reserved = self._cost(estimate)
        self._budget.reserve(reserved)
        used = Usage()
        try:
            slot = await self._pool.limiter.acquire(estimate.prompt_tokens + estimate.completion_tokens)
            receipt.requests += 1
            started = time.perf_counter()
            body = self._body(messages, schema, seed)
            used = estimate  # a request that is given up may still be billed
            try:
                status, headers, content = await self._post(client, body)
            except UnsentRequest:
                used = Usage()
                raise
            used = Usage()
            answer = self._read(status, headers, content)
            receipt.latency_s = time.perf_counter() - started
            used = usage_of(answer, messages)
            self._pool.limiter.settle(slot, used.prompt_tokens + used.completion_tokens)
            return reply_of(answer)
        finally:
            cost = self._cost(used)
            receipt.usage += used
            receipt.cost += cost
            self._budget.settle(reserved, cost)

    def _cost(self, usage: Usage) -> float:
        prices = self.settings.prices
        return prices.cost(usage.prompt_tokens, usage.completion_tokens) if prices else 0.0

    def _body(self, messages: Sequence[Message], schema: dict[str, Any] | None, seed: int) -> dict[str, Any]:
        dialect = self._dialect
        body: dict[str, Any] = {"model": self.settings.model, "messages": list(messages)}
        body[dialect.max_tokens_name] = self.settings.max_tokens
        if dialect.temperature:
            body["temperature"] = self.settings.temperature
        if dialect.seed:
            body["seed"] = seed
        if schema is not None and dialect.structure == "json_schema":
            json_schema = {"name": "verdict", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": json_schema}
        if schema is not None and dialect.structure == "json_object":
            body["response_format"] = {"type": "json_object"}
        return {**body, **self.settings.extra_body}

    async def _post(self, client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        content = bytearray()
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                # JSON with ASCII escapes, because lone surrogates cannot be encoded in UTF-8.
                request = client.stream(
                    "POST",
                    f"{self.settings.base_url}/chat/completions",
                    content=json.dumps(body).encode(),
                    headers={"Content-Type": "application/json"},
                )
                async with request as response:
                    if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
                        # A few bytes may unpack to gigabytes.
                        raise JudgeFault(
                            f"the endpoint's answer is compressed ({shorten(encoding)}), which was excluded"
                        )
                    async for piece in response.aiter_raw():
                        content += piece
                        if len(content) > LONGEST_ANSWER_BYTES:
                            raise JudgeFault(f"the endpoint's answer is longer than {LONGEST_ANSWER_BYTES} bytes")
            return response.status_code, response.headers, bytes(content)
        except httpx.ConnectTimeout:
            raise UnsentRequest(f"{self._where} refuses connections") from None
        except (TimeoutError, httpx.TimeoutException):
            raise SlowEndpoint(f"the judge took longer than {self.settings.timeout_s:g} s (timeout_s)") from None
        except httpx.RequestError as error:
            reason = self._without_key(f"{type(error).__name__}: {error}".rstrip(": "))
            if "CERTIFICATE_VERIFY_FAILED" in reason:
                raise JudgeFault(
                    f"the certificate of {self._where} is not trusted: {reason}; set SSL_CERT_FILE to the certificates"
                    " of its authority, or correct base_url"
                ) from None
            kind = UnsentRequest if isinstance(error, httpx.ConnectError | httpx.ProxyError) else TransientFault
            raise kind(f"the connection to {self._where} failed: {reason}") from None

    def _read(self, status: int, headers: httpx.Headers, content: bytes) -> dict[str, Any]:
        """Return the JSON of the answer, or raise the fault that the status means."""
        # An endpoint may repeat the key, as in `invalid key sk-…`. It must not get into logs and caches.
        text = content.decode("utf-8", "replace")
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), ensure_ascii=False)  # without escapes, which could hide the key
        text = self._without_key(text)
        if status == 200:
            try:
                answer = json.loads(text)
            except (ValueError, RecursionError):
                raise TransientFault(f"the endpoint's answer is not JSON: {shorten(text)}") from None
            if not isinstance(answer, dict):
                raise MalformedVerdict(f"the endpoint's answer is not a JSON object: {shorten(text)}")
            if "error" in answer and not answer.get("choices"):
                raise TransientFault(f"the endpoint answered with an error: {error_of(text)[0]}")
            return answer
        message, parameter, code = error_of(text)
        told = f"{self._where} answered {status}: {message}"
        if code == "insufficient_quota":
            raise JudgeFault(told)
        if status in _TRANSIENT or status >= 500:
            wait_s = retry_after(headers)
            if wait_s is not None and wait_s > LONGEST_WAIT_S:
                raise JudgeFault(f"{told} (Retry-After: {wait_s:g} s, above the limit of {LONGEST_WAIT_S:g} s)")
            raise TransientFault(told, wait_s)
        if status in (400, 404, 415, 422) and (unsupported := unsupported_parameter(message, parameter)):
            raise UnsupportedParameter(told, unsupported)
        if status == 401 and self.settings.api_key_env is None:
            told += " (no key was sent; set `api_key_env` to its environment variable)"
        raise JudgeFault(told)

    def _without_key(self, text: str) -> str:
        key = os.environ.get(self.settings.api_key_env or "", "").strip()
        return text.replace(key, "[key]") if len(key) >= SHORTEST_KEY else text


def _wait(state: tenacity.RetryCallState) -> float:
    """Return a random delay: 1 s to at most 2, 4, 8, … 30 s, and no less than the endpoint asked for."""
    back_off = tenacity.wait_random_exponential(multiplier=2, min=1, max=30)(state)
    fault = state.outcome.exception() if state.outcome else None
    asked = fault.retry_after_s if isinstance(fault, TransientFault) else None
    return max(back_off, asked or 0.0)
