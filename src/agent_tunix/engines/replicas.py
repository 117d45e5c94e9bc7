"""Replicas of an engine: which one answers a request, and what happens where one fails.

A replica that fails is left out, and its requests go to the others. It is tried again in the background, and
`Replicas.on_rejoin` brings it up to date before it is used again.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import httpx

from agent_tunix.engines.http import open_client
from agent_tunix.engines.wire import EngineFacts, Wire
from agent_tunix.errors import EngineError

_LOGGER = logging.getLogger("agent_tunix.engines")
_POLL_S = 0.02
_CHECK_S = 30.0  # in which a replica must answer a check
_PAUSE_S = 5.0  # between checks
_MOST_FAILED_CHECKS = 3  # in a row, after which the requests of a replica are given up
_BLOCK_TOKENS = 64
_KEPT_PREFIXES = 100_000
_MARGIN = 8  # requests that a replica may have more than another and still get those that continue its own
_FAILURES = frozenset({"engine_unavailable", "engine_no_model"})
# Codes of errors after which another replica may do better.
TRANSIENT = _FAILURES | {"engine_aborted"}
Result = TypeVar("Result")
Action = Callable[[Wire, httpx.AsyncClient], Awaitable[Result]]


class Replica:
    """A replica: what it told of itself, and what it does.

    Attributes:
        error: Why it gets no requests, unless it `is_up`.
        num_running: Requests that it answers now, of which `limits` are the time limits.
        changed: Set where it is left out.
    """

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.client = client
        self.facts: EngineFacts | None = None
        self.is_up = False
        self.error = "it has not answered yet"
        self.num_running = 0
        self.limits: set[asyncio.Timeout] = set()
        self.changed = asyncio.Event()


class Replicas:
    """The replicas of an engine. All methods are called in the thread of one event loop; see `EngineSource`.

    Attributes:
        on_rejoin: Action on a replica that was not there, before it gets requests; None for none.
        num_left_out: Times that a replica was left out.
    """

    def __init__(
        self, urls: Sequence[str], wire: Wire, *, api_key: str | None, max_concurrency: int, timeout_s: float
    ) -> None:
        self.on_rejoin: Action[object] | None = None
        self.num_left_out = 0
        self.all = [Replica(url, open_client(url, api_key, timeout_s)) for url in dict.fromkeys(urls)]
        self._wire = wire
        self._max_concurrency = max_concurrency
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(max_concurrency * len(self.all))
        self._homes: dict[int, Replica] = {}  # by beginning of a prompt
        self._num_acting = self._num_acted = 0  # actions on all replicas: in progress, and ended

    @property
    def up(self) -> list[Replica]:
        """The replicas that get requests."""
        return [replica for replica in self.all if replica.is_up]

    async def watch(self) -> None:
        """Check the replicas until the task is cancelled."""
        await asyncio.gather(*(self._watch(replica) for replica in self.all))

    async def wait_for_all(self) -> dict[str, EngineFacts]:
        """Wait until all replicas are up, and return what they tell; see `EngineSource.wait_until_ready`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._until(lambda: len(self.up) == len(self.all))
        except TimeoutError:
            raise self._unreachable() from None
        return {replica.url: replica.facts for replica in self.all if replica.facts is not None}

    @contextlib.asynccontextmanager
    async def one(self, prompt: tuple[int, ...], tried: set[Replica]) -> AsyncIterator[Replica]:
        """Yield a replica for a request, once there is a place at one; if possible none that was tried.

        Raises:
            EngineError: The block failed, or no replica was up for `timeout_s`.
        """
        keys = _prefix_keys(prompt)
        async with self._slots:
            replica = await self._until(lambda: self._choose(keys, tried))
            tried.add(replica)
            self.remember(prompt, replica)
            replica.num_running += 1
            try:
                async with self._use(replica):
                    yield replica
            finally:
                replica.num_running -= 1

    async def each(self, action: Action[Result]) -> dict[str, Result]:
        """Run an action on all replicas that are up, and return the results by URL; see `EngineSource.each`."""

        async def act(replica: Replica) -> Result:
            async with self._use(replica):
                return await action(self._wire, replica.client)

        await self._until(lambda: self.up)
        replicas = self.up
        self._num_acting += 1
        try:
            results = await asyncio.gather(*map(act, replicas), return_exceptions=True)
        finally:
            self._num_acting -= 1
            self._num_acted += 1
        done = {}
        for replica, result in zip(replicas, results, strict=True):
            if not isinstance(result, BaseException):
                done[replica.url] = result
            elif getattr(result, "code", "") not in TRANSIENT:
                raise result
        if not done:
            raise self._unreachable()
        return done

    async def _until(self, find: Callable[[], Result | None]) -> Result:
        """Return the first result that is not empty; raise EngineError where no replica is up for too long."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._timeout_s
        while not (result := find()):
            if self.up:
                end = clock() + self._timeout_s
            elif clock() > end:
                raise self._unreachable()
            await asyncio.sleep(_POLL_S)
        return result

    def _choose(self, keys: Sequence[int], tried: set[Replica]) -> Replica | None:
        """Return the replica that has most of a prompt, unless another has much less to do; None if all are full."""
        candidates = [one for one in self.up if one not in tried] or self.up
        free = [one for one in candidates if one.num_running < self._max_concurrency]
        if not free:
            return None
        replica = min(free, key=lambda one: one.num_running)
        home = next((self._homes[key] for key in reversed(keys) if key in self._homes), replica)
        return home if home in free and home.num_running <= replica.num_running + _MARGIN else replica

    def remember(self, tokens: tuple[int, ...], replica: Replica) -> None:
        """Send requests whose prompts begin with tokens to the replica that has them, where it has time."""
        if len(self._homes) > _KEPT_PREFIXES:
            self._homes.clear()
        self._homes |= dict.fromkeys(_prefix_keys(tokens), replica)

    @contextlib.asynccontextmanager
    async def _use(self, replica: Replica) -> AsyncIterator[None]:
        """Limit the time of requests to a replica, and leave it out if it fails them; raise EngineError then."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                replica.limits.add(limit)
                try:
                    yield
                finally:
                    replica.limits.discard(limit)
        except (TimeoutError, httpx.HTTPError) as error:
            if isinstance(error, httpx.HTTPError):
                reason = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                reason = f"it did not answer within {self._timeout_s:g} s" if replica.is_up else replica.error
            self._leave_out(replica, reason)
            raise EngineError(f"{replica.url}: {reason}", code="engine_unavailable") from None
        except EngineError as error:
            if error.code in _FAILURES:
                self._leave_out(replica, str(error))
            raise

    def _leave_out(self, replica: Replica, reason: str) -> None:
        replica.error = reason
        if replica.is_up:
            replica.is_up = False
            self.num_left_out += 1
            replica.changed.set()
            _LOGGER.warning("the engine %s is left out until it answers again: %s", replica.url, reason)

    async def _watch(self, replica: Replica) -> None:
        """Check a replica again and again: leave it out where it does not answer, and let it join where it does."""
        num_failed = 0
        while True:
            try:
                async with asyncio.timeout(min(_CHECK_S, self._timeout_s)):
                    replica.facts = await self._wire.describe(replica.client)
                num_failed = 0
                if not replica.is_up:
                    await self._join(replica)
            except Exception as error:  # whatever a check or the action meets, the replica is not used, and says why
                num_failed += 1
                reason = f"{type(error).__name__}: {error}".rstrip(": ")
                if not replica.is_up:
                    replica.error = reason
                elif num_failed >= _MOST_FAILED_CHECKS and not self._num_acting:
                    self._leave_out(replica, reason)
                    for limit in replica.limits:
                        if not limit.expired():
                            limit.reschedule(asyncio.get_running_loop().time())
            replica.changed.clear()
            pause_s = _PAUSE_S if replica.is_up else min(_POLL_S * 2 ** min(num_failed, 10), _PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await replica.changed.wait()

    async def _join(self, replica: Replica) -> None:
        """Let a replica join after `on_rejoin`, which is repeated where an action on the others came in between."""
        num_acted = -1
        while num_acted != self._num_acted or self._num_acting:
            while self._num_acting:
                await asyncio.sleep(_POLL_S)
            num_acted = self._num_acted
            if self.on_rejoin is not None:
                async with asyncio.timeout(self._timeout_s):
                    await self.on_rejoin(self._wire, replica.client)
        replica.is_up = True
        _LOGGER.info("the engine %s answers", replica.url)

    def _unreachable(self) -> EngineError:
        reasons = "; ".join(f"{one.url}: {one.error}" for one in self.all if not one.is_up)
        return EngineError(
            f"the engine must answer, but for {self._timeout_s:g} s (engine.timeout_s) it did not ({reasons}); start "
            "it again, or correct engine.urls",
            code="engine_unreachable",
        )


def _prefix_keys(tokens: tuple[int, ...]) -> list[int]:
    """Return a key of each beginning of whole blocks, and one of all tokens."""
    blocks = (tokens[start : start + _BLOCK_TOKENS] for start in range(0, len(tokens), _BLOCK_TOKENS))
    return list(itertools.accumulate(blocks, lambda key, block: hash((key, block)), initial=0))[1:]
