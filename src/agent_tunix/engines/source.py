"""A source of tokens that an engine samples, with the retries of its requests."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_tunix.closing import Closing
from agent_tunix.errors import ConfigError, EngineError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

try:
    import httpx
    import tenacity
except ImportError as _error:
    raise ConfigError(
        f"{_error}; an engine requires httpx and tenacity: pip install 'agent_tunix[engines]'", code="missing_package"
    ) from _error

from agent_tunix.engines.http import open_client
from agent_tunix.engines.own import OwnWire
from agent_tunix.engines.replicas import TRANSIENT, Action, Replica, Replicas
from agent_tunix.engines.replies import UNKNOWN_VERSION
from agent_tunix.engines.sglang import SglangWire
from agent_tunix.engines.vllm import VllmWire
from agent_tunix.engines.wire import EngineFacts, Wire

Result = TypeVar("Result")
_MOST_WAIT_S = 10.0


def make_wire(kind: str, vocab_size: int | None = None) -> Wire:
    """Return the routes of a kind of engine, `engine.name`. With a vocabulary size, other token ids are errors."""
    return {wire.kind: wire for wire in (VllmWire, SglangWire, OwnWire)}[kind](vocab_size)


@dataclass
class EngineCounts:
    """The work of an engine since its source was made."""

    requests: int = 0  # that were answered
    tokens: int = 0  # of the replies
    retries: int = 0  # times that a request was sent again
    context_cut: int = 0  # replies that ended at the engine's context, before the tokens that were asked for


class EngineSource(Closing):
    """A `TokenSource` that an engine of several replicas answers. A thread of its own sends the requests.

    Args:
        urls: URLs of the replicas.
        wire: Routes of the engine.
        api_key: Key of the replicas; None if they need none.
        max_concurrency: Requests that a replica gets at a time; the others wait here.
        timeout_s: Seconds that a request may take at a replica, and for which requests wait while none answers.
        max_retries: Times that a request is sent again after a failure.
        reason_gone: Returns why no replica that is down will answer again; None if one may.

    Attributes:
        base_model: Name of the model that the replicas serve, known after `wait_until_ready`.
        counts: The work of the engine so far.
        on_rejoin: Action on each replica that was not there, before it gets requests. After an error it stays out.

    Raises:
        ConfigError: A URL cannot be used, or a package is missing.
    """

    def __init__(
        self,
        urls: Sequence[str],
        wire: Wire,
        *,
        api_key: str | None = None,
        max_concurrency: int = 256,
        timeout_s: float = 600.0,
        max_retries: int = 5,
        reason_gone: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.base_model = ""
        self._wire = wire
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self.counts = EngineCounts()
        self.on_rejoin: Action[object] | None = None
        clients = {url: open_client(url, api_key, timeout_s) for url in urls}
        self._replicas = Replicas(clients, wire, self._bring_up, max_concurrency, timeout_s, reason_gone)
        self._followed: tuple[int, str | None] = (0, None)
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="engine-source", daemon=True)
        self._thread.start()

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt with the model that was followed last, at first the base; see `TokenSource`.

        `request.adapter` names another model of the engine. `on_part` gets the reply as one part, in the source's
        thread. The reply has the version of its model. It fails with EngineError if no replica answers, or one answers
        what it must not.
        """
        version, model = self._followed
        if request.adapter is not None:
            model = request.adapter
            version = self._versions.get(model, version)
        return self._start(self._answer(request, model, version, on_part))

    def follow(self, version: int, model: str) -> None:
        """Sample new requests from a model that all replicas have, of a number of weight updates."""
        self._versions[model] = version
        self._followed = (version, model)

    def each(self, action: Action[Result], *, waits: bool = True) -> dict[str, Result]:
        """Run an action on all replicas that are up, and return its results by URL. No replica joins meanwhile.

        A replica that does not answer within `timeout_s` has no result: it is left out, until it answers again. If none
        takes the action, it is tried again once one is up, unless `waits` is false.

        Raises:
            EngineError: No replica is up, or one refuses.
            Exception: What an action raised.
        """
        return self._start(self._replicas.each(action, waits=waits)).result()

    @property
    def is_up(self) -> bool:
        """True if a replica gets requests now."""
        return bool(self._replicas.up)

    def wait_until_ready(self) -> dict[str, EngineFacts]:
        """Wait for all replicas, at most `timeout_s`, and return what they tell of themselves by URL.

        Raises:
            EngineError: A replica does not answer, or serves another model than the others.
        """
        facts = self._start(self._replicas.wait_for_all()).result()
        self.base_model = next(iter(facts.values())).models[0]
        if len({(one.models[0], one.max_context) for one in facts.values()}) > 1:
            names = ", ".join(f"{url}: {one.models[0]} (context {one.max_context})" for url, one in facts.items())
            raise EngineError(
                f"all of engine.urls must serve the same model, but they serve {names}", code="engine_differs"
            )
        return facts

    def close(self) -> None:
        """Cancel all requests, close the connections and end the thread."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._tasks.add(asyncio.create_task(self._replicas.watch()))
        await self._stop.wait()
        for task in self._tasks:  # those that they have started end with them
            task.cancel()
        await asyncio.wait(self._tasks)
        for replica in self._replicas.all:
            await replica.client.aclose()

    def _start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        with self._lock:
            if self._is_closed:
                work.close()
                raise EngineError("the source of an engine must be open, but it was closed", code="closed")
            return asyncio.run_coroutine_threadsafe(self._do(work), self._loop)

    async def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    async def _answer(
        self, request: TokenRequest, model: str | None, version: int, on_part: Callable[[TokenReply], None] | None
    ) -> TokenReply:
        failures = self._retrying(TRANSIENT, tenacity.stop_after_attempt(self._max_retries + 1))
        # An engine that has too many requests has not failed.
        busy = self._retrying({"engine_busy"}, tenacity.stop_after_delay(self._timeout_s))
        reply: TokenReply = await failures(busy, self._sample, request, model, version, set())
        self.counts.requests += 1
        self.counts.tokens += len(reply.tokens)
        self.counts.context_cut += reply.finish_reason == "length" and len(reply.tokens) < request.max_tokens
        if on_part is not None:
            on_part(reply)
        return reply

    def _retrying(self, codes: Collection[str], stop: tenacity.stop.stop_base) -> tenacity.AsyncRetrying:
        """Return what calls a function again after errors with some codes."""
        return tenacity.AsyncRetrying(
            stop=stop,
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_MOST_WAIT_S),
            retry=tenacity.retry_if_exception(lambda error: getattr(error, "code", "") in codes),
            before_sleep=self._count_retry,
            reraise=True,
        )

    def _count_retry(self, state: tenacity.RetryCallState) -> None:
        self.counts.retries += 1

    async def _bring_up(self, wire: Wire, client: httpx.AsyncClient) -> None:
        if self.on_rejoin is not None:
            await self.on_rejoin(wire, client)

    async def _sample(self, request: TokenRequest, model: str | None, version: int, tried: set[Replica]) -> TokenReply:
        async with self._replicas.one(request.prompt, tried) as replica:
            assert replica.facts is not None, "it is up"
            base = replica.facts.models[0]
            reply = await self._wire.sample(replica.client, model or base, request)
            self._replicas.remember((*request.prompt, *reply.tokens), replica)
        if model in (None, base) and reply.version not in (UNKNOWN_VERSION, version):
            raise EngineError(
                f"{replica.url} must sample with the weights of version {version}, but it did with those of version "
                f"{reply.version}; nothing else may load weights into it",
                code="engine_version",
            )
        return dataclasses.replace(reply, version=version)
