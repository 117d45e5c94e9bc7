"""Replicas of an engine: which one answers a request, and what happens where one fails.

A replica that fails is left out, and its requests go to the others. It is tried again in the background. Before it is
used again, `Replicas.on_rejoin` brings it up to date.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import httpx

from agent_tunix.engines.http import open_client
from agent_tunix.engines.wire import EngineFacts, Wire
from agent_tunix.errors import EngineError

_LOGGER = logging.getLogger("agent_tunix.engines")
_CHECK_S = 30.0  # in which a replica must answer a check
_PAUSE_S = 5.0  # between checks
_FIRST_PAUSE_S = 0.1  # before a replica that failed is tried again; then longer
_MOST_FAILED_CHECKS = 3  # in a row, after which the requests of a replica are given up
_BLOCK_TOKENS = 64
_KEPT_PREFIXES = 100_000
_MARGIN = 8  # requests that a replica may have more than another and still get those that continue its own
# Errors after which another replica may answer; after these, the replica is left out.
_FAILURES = frozenset({"engine_unavailable", "engine_no_model"})
TRANSIENT = _FAILURES | {"engine_aborted"}
Result = TypeVar("Result")
Action = Callable[[Wire, httpx.AsyncClient], Awaitable[Result]]


class Replica:
    """A replica of the engine.

    Attributes:
        url: Its URL.
        client: Client with its connections.
        facts: What it last told of itself; None before.
        is_up: True if it gets requests.
        error: Why it gets none.
        num_running: Requests that it answers now.
        limits: Time limits of these.
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
    """The replicas of an engine. All methods are called in the thread of one event loop.

    Args:
        urls: URLs of the replicas.
        wire: Routes of the engine.
        api_key: Key of all; None if they need none.
        max_concurrency: Requests that a replica gets at a time.
        timeout_s: Seconds that a request, and the way back of a replica, may take.

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
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._places = _PrefixPlaces()
        # Held while a replica joins, and during actions on all: none may join in the middle of one.
        self._joining = asyncio.Lock()

    async def watch(self) -> None:
        """Check the replicas until the task is cancelled."""
        await asyncio.gather(*(self._watch(replica) for replica in self.all))

    async def close(self) -> None:
        """Close the connections."""
        for replica in self.all:
            await replica.client.aclose()

    async def wait_for_all(self) -> dict[str, EngineFacts]:
        """Wait until all replicas are up, and return what they tell; see `EngineSource.wait_until_ready`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while not all(replica.is_up for replica in self.all):
                    await asyncio.sleep(_FIRST_PAUSE_S)
        if not all(replica.is_up for replica in self.all):
            raise self.unreachable()
        return {replica.url: replica.facts for replica in self.all if replica.facts is not None}

    @contextlib.asynccontextmanager
    async def one(self, prompt: tuple[int, ...], tried: set[Replica]) -> AsyncIterator[Replica]:
        """Yield a replica for a request with a prompt, once there is a place at one.

        Args:
            prompt: Token ids.
            tried: Replicas that have had the request, to which the new one is added. Others are better.

        Raises:
            EngineError: The block failed, and its code is one of `TRANSIENT` where another replica may do better; or
                no replica was there for `timeout_s`.
        """
        keys = list(_prefix_keys(prompt))
        while (replica := self._choose(keys, tried)) is None:
            await self._wait()
        tried.add(replica)
        replica.num_running += 1
        try:
            async with self.use(replica):
                yield replica
        finally:
            replica.num_running -= 1
            self._wake(1)

    async def each(self, action: Action[Result]) -> dict[str, Result]:
        """Run an action on all replicas that are up, and return the results by URL; see `EngineSource.each`."""
        while not any(replica.is_up for replica in self.all):
            await self._wait()
        async with self._joining:
            replicas = [replica for replica in self.all if replica.is_up]
            results = await asyncio.gather(*(self._act(one, action) for one in replicas), return_exceptions=True)
        done = {}
        for replica, result in zip(replicas, results, strict=True):
            if not isinstance(result, BaseException):
                done[replica.url] = result
            elif not (isinstance(result, EngineError) and result.code in TRANSIENT):
                raise result
        if not done:
            raise self.unreachable()
        return done

    async def _act(self, replica: Replica, action: Action[Result]) -> Result:
        async with self.use(replica):
            return await action(self._wire, replica.client)

    @contextlib.asynccontextmanager
    async def use(self, replica: Replica) -> AsyncIterator[None]:
        """Limit the time of requests to a replica, and leave it out if it fails them.

        Raises:
            EngineError: It failed.
        """
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                replica.limits.add(limit)
                try:
                    yield
                finally:
                    replica.limits.discard(limit)
        except TimeoutError:
            reason = f"it did not answer within {self._timeout_s:g} s" if replica.is_up else replica.error
            self._leave_out(replica, reason)
            raise EngineError(f"{replica.url}: {reason}", code="engine_unavailable") from None
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            self._leave_out(replica, reason)
            raise EngineError(f"{replica.url}: {reason}", code="engine_unavailable") from None
        except EngineError as error:
            if error.code in _FAILURES:
                self._leave_out(replica, str(error))
            raise

    def unreachable(self) -> EngineError:
        """Return the error that says of each replica why it is left out."""
        reasons = "; ".join(f"{one.url}: {one.error}" for one in self.all if not one.is_up)
        return EngineError(
            f"the engine must answer, but for {self._timeout_s:g} s (engine.timeout_s) it did not ({reasons}); start "
            "it again, or correct engine.urls",
            code="engine_unreachable",
        )

    # --- choice ----------------------------------------------------------------------------------------------------

    def _choose(self, keys: Sequence[int], tried: set[Replica]) -> Replica | None:
        """Return the replica that has the prompt's beginning, unless another has much less to do; None if all do."""
        up = [one for one in self.all if one.is_up]
        free = [one for one in [one for one in up if one not in tried] or up if one.num_running < self._max_concurrency]
        if not free:
            return None
        replica = min(free, key=lambda one: one.num_running)
        url = self._places.find(keys)
        if near := [one for one in free if one.url == url and one.num_running <= replica.num_running + _MARGIN]:
            replica = near[0]
        self._places.keep(keys, replica.url)
        return replica

    async def _wait(self) -> None:
        """Wait for a place; raise EngineError if there is no replica in all the time."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        limit_s = None if any(replica.is_up for replica in self.all) else self._timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await waiter
        except TimeoutError:
            if not any(replica.is_up for replica in self.all):
                raise self.unreachable() from None
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # another one takes the place
            raise

    def _wake(self, count: int) -> None:
        while self._waiters and count > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    # --- failures --------------------------------------------------------------------------------------------------

    def _leave_out(self, replica: Replica, reason: str) -> None:
        replica.error = reason
        if not replica.is_up:
            return
        replica.is_up = False
        self.num_left_out += 1
        _LOGGER.warning("the engine %s is left out until it answers again: %s", replica.url, reason)
        replica.changed.set()
        self._wake(len(self._waiters))  # those that wait for a place now wait for a replica

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
                elif num_failed >= _MOST_FAILED_CHECKS and not self._joining.locked():
                    self._leave_out(replica, reason)
                    for limit in replica.limits:
                        if not limit.expired():
                            limit.reschedule(asyncio.get_running_loop().time())
            replica.changed.clear()
            pause_s = _PAUSE_S if replica.is_up else min(_FIRST_PAUSE_S * 2 ** min(num_failed, 10), _PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await replica.changed.wait()

    async def _join(self, replica: Replica) -> None:
        async with self._joining:
            if self.on_rejoin is not None:
                async with asyncio.timeout(self._timeout_s):
                    await self.on_rejoin(self._wire, replica.client)
            replica.is_up = True
        _LOGGER.info("the engine %s answers", replica.url)
        self._wake(len(self._waiters))


class _PrefixPlaces:
    """The replicas that were last given prompts with certain beginnings."""

    def __init__(self) -> None:
        self._urls: OrderedDict[int, str] = OrderedDict()

    def find(self, keys: Sequence[int]) -> str | None:
        """Return the URL of the replica that has the longest beginning; None if none has any."""
        return next((self._urls[key] for key in reversed(keys) if key in self._urls), None)

    def keep(self, keys: Sequence[int], url: str) -> None:
        """Remember who has the beginnings, and forget the oldest others."""
        for key in keys:
            self._urls[key] = url
            self._urls.move_to_end(key)
        while len(self._urls) > _KEPT_PREFIXES:
            self._urls.popitem(last=False)


def _prefix_keys(prompt: tuple[int, ...]) -> Iterator[int]:
    """Yield a key of each beginning of whole blocks, and one of the whole prompt."""
    key = 0
    for start in range(0, len(prompt), _BLOCK_TOKENS):
        key = hash((key, prompt[start : start + _BLOCK_TOKENS]))
        yield key
