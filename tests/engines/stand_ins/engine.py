"""Common base of the stand-ins: weights under names, a cache of prefixes, and faults at will."""

import asyncio
import contextlib
import dataclasses
import enum
import functools
import json
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agent_tunix.errors import AgentTunixError
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings
from tests.engines.stand_ins.policies import Policy


class Fault(enum.StrEnum):
    """Fault of an engine."""

    STARTING = "503 on every route"
    HANG = "no answer until `release` is set"
    HALF_BODY = "the connection ends within the body"
    NO_SUCCESS = "weights, adapters and caches stay as they are: success is false"
    FALLBACK = "the base answers for an adapter that is not loaded, under its name"
    STALE_PREFIX = "what was cached for a name stays after its weights changed"
    IGNORES_WEIGHTS = "weights and adapters are accepted, and not used"
    MISSING_LOGPS = "a log-probability is missing"
    INFINITE_LOGPS = "a log-probability is minus infinity"
    RAW_LOGPS = "log-probabilities at temperature 1, not at that of the request"
    WRONG_TEMPERATURE = "every request is sampled at temperature 1"
    DEFAULT_SAMPLING = "generation_config.json sets keys that a request leaves out"
    ABORT = "replies are aborted after their first token"
    OTHER_MODEL = "replies name another model"


# As many models have in their generation_config.json.
GENERATION_CONFIG = {"temperature": 0.6, "top_k": 3}
# Tokens that decide which prefix was cached.
_BLOCK = 4


class StandIn:
    """An engine with the routes of a subclass.

    Attributes:
        faults: What it does wrong; may change at any time.
        fault_paths: Beginnings of the paths on which it starts, hangs or sends half a body.
        base: Name of the model.
        names: Weights by name, the base's first.
        bodies: Pairs (path, body) of the requests that came.
        release: Ends what hangs.
    """

    base = "base"

    def __init__(self, policy: Policy, *faults: Fault, max_rank: int = 16, key: str | None = None) -> None:
        self.policy = policy
        self.faults = set(faults)
        self.fault_paths: tuple[str, ...] = ("/",)
        self.max_rank = max_rank
        self.key = key
        self.names: dict[str, Any] = {self.base: policy.first_weights()}
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.release = threading.Event()
        self._cache: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._unpaused = asyncio.Event()
        self._unpaused.set()
        self._idle = asyncio.Condition()
        self._num_running = 0

    def app(self) -> FastAPI:
        """Return the routes."""
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serve on a free port of the loopback, and yield the URL."""
        app = self.app()
        app.middleware("http")(self._answer)
        try:
            with serving(app, PolicySettings(port=0)) as url:
                try:
                    yield url.removesuffix("/v1")
                finally:
                    self.release.set()
        finally:
            self.release.set()

    # --- weights ---------------------------------------------------------------------------------------------------

    def load_adapter(self, name: str, directory: Path) -> None:
        """Put an adapter under a name; raise ValueError if it cannot be read."""
        weights = self.names[self.base]
        try:
            rank = json.loads((directory / "adapter_config.json").read_bytes())["r"]
            if rank > self.max_rank:
                raise ValueError(f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.")
            loaded = self.policy.read_adapter(weights, directory)
        except (OSError, AgentTunixError) as error:
            raise ValueError(f"Loading lora {name} failed: No adapter found for {directory}: {error}") from error
        self.names[name] = weights if Fault.IGNORES_WEIGHTS in self.faults else loaded

    def unload_adapter(self, name: str) -> None:
        """Forget a name, and what was cached for it."""
        del self.names[name]
        if Fault.STALE_PREFIX not in self.faults:
            self._cache = {key: weights for key, weights in self._cache.items() if key[0] != name}

    def load_weights(self, directory: Path) -> None:
        """Replace the base; raise ValueError if it cannot be read. What was cached stays until `reset_cache`."""
        try:
            loaded = self.policy.read_weights(directory)
        except (OSError, AgentTunixError) as error:
            raise ValueError(f"Failed to load weights of {directory}: {error}") from error
        if Fault.IGNORES_WEIGHTS not in self.faults:
            self.names[self.base] = loaded

    def reset_cache(self) -> None:
        """Forget all prefixes."""
        if not self.faults & {Fault.STALE_PREFIX, Fault.NO_SUCCESS}:
            self._cache.clear()

    async def pause(self) -> None:
        """Let new requests wait, and wait for those in progress."""
        self._unpaused.clear()
        async with self._idle:
            await self._idle.wait_for(lambda: not self._num_running)

    def resume(self) -> None:
        """Answer requests again."""
        self._unpaused.set()

    @property
    def is_paused(self) -> bool:
        """True while requests wait."""
        return not self._unpaused.is_set()

    # --- sampling --------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Return True if requests may name a model."""
        return name in self.names or Fault.FALLBACK in self.faults

    def sampling_of(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the sampling keys of a body; those that it leaves out may come from elsewhere."""
        given = {name: value for name, value in body.items() if value is not None}
        return (GENERATION_CONFIG if Fault.DEFAULT_SAMPLING in self.faults else {}) | given

    async def reply(self, name: str, request: TokenRequest) -> tuple[TokenReply, list[float | None]]:
        """Return a reply, and its log-probabilities as the engine reports them."""
        await self._unpaused.wait()
        async with self._busy():
            return await anyio.to_thread.run_sync(functools.partial(self._sample, name, request))

    def _sample(self, name: str, request: TokenRequest) -> tuple[TokenReply, list[float | None]]:
        weights = self._cache.setdefault((name, request.prompt[:_BLOCK]), self.names.get(name, self.names[self.base]))
        if Fault.WRONG_TEMPERATURE in self.faults:
            request = dataclasses.replace(request, temperature=1.0)
        reply = self.policy.reply(weights, request)
        if Fault.ABORT in self.faults:
            reply = dataclasses.replace(reply, tokens=reply.tokens[:1], logps=reply.logps[:1], finish_reason="abort")
        logps: list[float | None] = list(reply.logps)
        if Fault.RAW_LOGPS in self.faults:
            whole = (*request.prompt, *reply.tokens)
            score = TokenRequest(whole, 1, with_prompt_logps=True)
            logps = list(self.policy.reply(weights, score).prompt_logps[len(request.prompt) :])
        if logps and Fault.MISSING_LOGPS in self.faults:
            logps[-1] = None
        if logps and Fault.INFINITE_LOGPS in self.faults:
            logps[-1] = -math.inf
        return reply, logps

    @contextlib.asynccontextmanager
    async def _busy(self) -> AsyncIterator[None]:
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1
            async with self._idle:
                self._idle.notify_all()

    # --- HTTP ------------------------------------------------------------------------------------------------------

    async def _answer(self, request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answer a request, with the faults that concern every route."""
        if request.method == "POST" and (body := await request.body()):
            self.bodies.append((request.url.path, json.loads(body)))
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return Response('{"error": "Unauthorized"}', 401, media_type="application/json")
        faults = self.faults if request.url.path.startswith(self.fault_paths) else set()
        if Fault.STARTING in faults:
            return Response(status_code=503)
        while Fault.HANG in faults and not self.release.is_set():
            await asyncio.sleep(0.01)
        response = await answer(request)
        if Fault.HALF_BODY in faults:
            whole = b"".join([part async for part in response.body_iterator])  # type: ignore[attr-defined]
            headers = {"content-length": str(len(whole) + 1), "content-type": "application/json"}
            return Response(whole[: len(whole) // 2], response.status_code, headers)
        return response
