"""A source of tokens that an engine samples, with the retries of its requests."""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_tunix.closing import Closing
from agent_tunix.errors import ConfigError, EngineError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

try:
    import httpx  # noqa: F401
    import tenacity
except ImportError as _error:
    raise ConfigError(
        f"{_error}; an engine requires httpx and tenacity: pip install 'agent_tunix[engines]'", code="missing_package"
    ) from _error

from agent_tunix.engines.replicas import TRANSIENT, Action, Replica, Replicas
from agent_tunix.engines.replies import UNKNOWN_VERSION
from agent_tunix.engines.wire import EngineFacts, Wire

Result = TypeVar("Result")
_MOST_WAIT_S = 10.0


@dataclass(frozen=True)
class EngineCounts:
    """The work of an engine since its source was made.

    Attributes:
        requests: Requests that were answered.
        tokens: Tokens of the replies.
        retries: Times that a request was sent again.
        context_cut: Replies that ended at the engine's context, before the tokens that were asked for.
        left_out: Times that a replica was left out.
        running: Requests that the replicas answer now.
        up: Replicas that get requests now.
    """

    requests: int = 0
    tokens: int = 0
    retries: int = 0
    context_cut: int = 0
    left_out: int = 0
    running: int = 0
    up: int = 0


class EngineSource(Closing):
    """A `TokenSource` that an engine of several replicas answers. A thread of its own sends the requests.

    Args:
        urls: URLs of the replicas.
        wire: Routes of the engine.
        base_model: Name of the model that the replicas serve.
        api_key: Their key; None if they need none.
        max_concurrency: Requests that a replica gets at a time; the others wait here.
        timeout_s: Seconds that a request may take at a replica, and for which requests wait while none answers.
        max_retries: Times that a request is sent again after a failure.

    Raises:
        ConfigError: A URL cannot be used, or a package is missing.
    """

    def __init__(
        self,
        urls: Sequence[str],
        wire: Wire,
        *,
        base_model: str,
        api_key: str | None = None,
        max_concurrency: int = 256,
        timeout_s: float = 600.0,
        max_retries: int = 5,
    ) -> None:
        self._wire = wire
        self._base_model = base_model
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._replicas = Replicas(urls, wire, api_key=api_key, max_concurrency=max_concurrency, timeout_s=timeout_s)
        self._followed = (0, base_model)
        self._versions: dict[str, int] = {}
        self._counts = EngineCounts()
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, name="engine-source", daemon=True)
        self._thread.start()

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt with the model that was followed last; see `TokenSource`.

        Args:
            request: The prompt. Its `adapter` names another model of the engine.
            on_part: Function that gets the reply, as one part, in the source's thread.

        Returns:
            The reply, with the version of its model. It fails with EngineError if no replica answers, or one answers
            what it must not, and with RequestRefusedError if the engine refuses the request.
        """
        version, model = self._followed
        if request.adapter is not None:
            model = request.adapter
            version = self._versions.get(model, version)
        return self._start(self._answer(request, model, version, on_part))

    def follow(self, version: int, model: str) -> None:
        """Sample new requests from a model, which all replicas have, and give their replies a version.

        Args:
            version: Number of weight updates of the model.
            model: Name of the base or of an adapter. An adapter keeps its version.
        """
        self._versions[model] = version
        self._followed = (version, model)

    def each(self, action: Action[Result]) -> dict[str, Result]:
        """Run an action on all replicas that are up, and wait for it. No replica joins meanwhile.

        Args:
            action: Asynchronous function of the wire and the client of a replica. It gets at most `timeout_s`.

        Returns:
            Its results by URL. A replica that fails to answer has none: it is left out, until it answers again.

        Raises:
            EngineError: No replica is up, or one refuses.
            Exception: What an action raised.
        """
        return self._start(self._replicas.each(action)).result()

    def wait_until_ready(self) -> dict[str, EngineFacts]:
        """Wait for all replicas, at most `timeout_s`, and return what they tell of themselves by URL.

        Raises:
            EngineError: A replica does not answer; the message says why.
        """
        return self._start(self._replicas.wait_for_all()).result()

    @property
    def on_rejoin(self) -> Action[object] | None:
        """An action on each replica that was not there, before it gets requests. It may raise EngineError."""
        return self._replicas.on_rejoin

    @on_rejoin.setter
    def on_rejoin(self, action: Action[object] | None) -> None:
        self._replicas.on_rejoin = action

    @property
    def counts(self) -> EngineCounts:
        """The work of the engine so far."""
        replicas = self._replicas
        return dataclasses.replace(
            self._counts,
            left_out=replicas.num_left_out,
            running=sum(one.num_running for one in replicas.all),
            up=sum(one.is_up for one in replicas.all),
        )

    def close(self) -> None:
        """Cancel all requests, close the connections and end the thread."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # --- in the thread ---------------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        watcher = asyncio.create_task(self._replicas.watch())
        await self._stop.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait({*tasks, watcher})
        await self._replicas.close()

    def _start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        with self._lock:
            if self._is_closed:
                work.close()
                raise EngineError("the source of an engine must be open, but it was closed", code="closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _answer(
        self, request: TokenRequest, model: str, version: int, on_part: Callable[[TokenReply], None] | None
    ) -> TokenReply:
        failures = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._max_retries + 1),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_MOST_WAIT_S),
            retry=tenacity.retry_if_exception(lambda error: getattr(error, "code", "") in TRANSIENT),
            before_sleep=self._count_retry,
            reraise=True,
        )
        # An engine that has too many requests has not failed.
        busy = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_delay(self._timeout_s),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=_MOST_WAIT_S),
            retry=tenacity.retry_if_exception(lambda error: getattr(error, "code", "") == "engine_busy"),
            before_sleep=self._count_retry,
            reraise=True,
        )
        reply: TokenReply = await failures(busy, self._sample, request, model, version, set())
        self._count(request, reply)
        if on_part is not None:
            on_part(reply)
        return reply

    async def _sample(self, request: TokenRequest, model: str, version: int, tried: set[Replica]) -> TokenReply:
        async with self._replicas.one(request.prompt, tried) as replica:
            reply = await self._wire.sample(replica.client, model, request)
        if model == self._base_model and reply.version not in (UNKNOWN_VERSION, version):
            raise EngineError(
                f"{replica.url} must sample with the weights of version {version}, but it did with those of version "
                f"{reply.version}; nothing else may load weights into it",
                code="engine_version",
            )
        return dataclasses.replace(reply, version=version)

    def _count_retry(self, state: tenacity.RetryCallState) -> None:
        self._counts = dataclasses.replace(self._counts, retries=self._counts.retries + 1)

    def _count(self, request: TokenRequest, reply: TokenReply) -> None:
        counts = self._counts
        is_cut = reply.finish_reason == "length" and len(reply.tokens) < request.max_tokens
        self._counts = dataclasses.replace(
            counts,
            requests=counts.requests + 1,
            tokens=counts.tokens + len(reply.tokens),
            context_cut=counts.context_cut + is_cut,
        )
