"""Replicas of an engine: which one answers a request, and what happens where one fails.

A replica that fails is left out, and its requests go to the others. It is tried again in the background, and brought
up to date before it is used again.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

from agent_tunix.engines.wire import EngineFacts, Wire
from agent_tunix.errors import EngineError

_LOGGER = logging.getLogger("agent_tunix.engines")
_POLL_S = 0.02
_CHECK_S = 30.0  # in which a replica must answer a check
_PAUSE_S = 5.0  # between checks
_MOST_FAILED_CHECKS = 3  # in a row, after which the requests of a replica are given up
_MOST_ROUNDS = 3  # of an action on all replicas that none of them took
_BLOCK_TOKENS = 64
_KEPT_PREFIXES = 100_000
_MARGIN = 8  # requests that a replica may have more than another and still get those that continue its own
_FAILURES = frozenset({"engine_unavailable", "engine_no_model"})
# Codes of errors after which another replica may do better.
TRANSIENT = _FAILURES | {"engine_aborted"}
Result = TypeVar("Result")
Action = Callable[[Wire, httpx.AsyncClient], Awaitable[Result]]


@dataclass(eq=False)
class Replica:
    """A replica: what it told of itself, and what it does."""

    url: str
    client: httpx.AsyncClient
    facts: EngineFacts | None = None
    is_up: bool = False
    error: str = "it has not answered yet"  # why it is not up
    num_failed: int = 0  # checks since it last answered anything
    limits: set[asyncio.Timeout] = field(default_factory=set)  # of the requests that it answers now
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set where it is left out


class Replicas:
    """The replicas of an engine. All methods are called in the thread of one event loop; see `EngineSource`.

    Args:
        clients: Clients of the replicas by URL.
        wire: Routes of the engine.
        bring_up: Action on a replica that was not there, before it gets requests.
        max_concurrency: Requests that a replica gets at a time.
        timeout_s: Seconds that a request may take.
        reason_gone: Returns why no replica that is down will answer again; None if one may.
    """

    def __init__(
        self,
        clients: Mapping[str, httpx.AsyncClient],
        wire: Wire,
        bring_up: Action[object],
        max_concurrency: int,
        timeout_s: float,
        reason_gone: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.all = [Replica(*item) for item in clients.items()]
        self._bring_up = bring_up
        self._down_since = time.monotonic()  # where no replica is up
        self._wire = wire
        self._max_concurrency = max_concurrency
        self._timeout_s = timeout_s
        self._reason_gone = reason_gone
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
            async with self._use(replica):
                yield replica

    async def each(self, action: Action[Result], *, waits: bool = True) -> dict[str, Result]:
        """Run an action on all replicas that are up, and return the results by URL; see `EngineSource.each`."""
        failures: list[EngineError] = []
        for _ in range(_MOST_ROUNDS if waits else 1):
            if waits:
                await self._until(lambda: self.up)
            if done := await self._act(self.up, action, failures):
                return done
        raise failures[-1] if failures else self._unreachable()

    async def _act(
        self, replicas: Sequence[Replica], action: Action[Result], failures: list[EngineError]
    ) -> dict[str, Result]:
        async def act(replica: Replica) -> None:
            try:
                async with self._use(replica):
                    done[replica.url] = await action(self._wire, replica.client)
            except EngineError as error:
                if error.code not in TRANSIENT:
                    raise
                failures.append(error)

        done: dict[str, Result] = {}
        self._num_acting += 1
        try:
            errors = await asyncio.gather(*map(act, replicas), return_exceptions=True)
        finally:
            self._num_acting -= 1
            self._num_acted += 1
        for error in errors:
            if error is not None:
                raise error
        return done

    async def _until(self, find: Callable[[], Result | None]) -> Result:
        """Return the first result that is not empty; raise EngineError once no replica has been up for too long.

        That is at once if none will be up again.
        """
        while not (result := find()):
            if not self.up and (reason := self._reason_gone()):
                raise EngineError(reason, code="sampling_process_failed")
            if not self.up and time.monotonic() > self._down_since + self._timeout_s:
                raise self._unreachable()
            await asyncio.sleep(_POLL_S)
        return result

    def _choose(self, keys: Sequence[int], tried: set[Replica]) -> Replica | None:
        """Return the replica that has most of a prompt, unless another has much less to do; None if all are full."""
        candidates = [one for one in self.up if one not in tried] or self.up
        free = [one for one in candidates if len(one.limits) < self._max_concurrency]
        if not free:
            return None
        replica = min(free, key=lambda one: len(one.limits))
        home = next((self._homes[key] for key in reversed(keys) if key in self._homes), replica)
        return home if home in free and len(home.limits) <= len(replica.limits) + _MARGIN else replica

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
                    replica.num_failed = 0
                finally:
                    replica.limits.discard(limit)
        except (TimeoutError, httpx.HTTPError) as error:
            if isinstance(error, httpx.HTTPError):
                reason = f"{type(error).__name__}: {error}".rstrip(": ")
            else:
                reason = replica.error
                if replica.is_up:
                    reason = (
                        f"it did not answer within {self._timeout_s:g} s; raise engine.timeout_s, or lower "
                        "engine.max_concurrency if requests wait there"
                    )
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
            self._down_since = time.monotonic()
            replica.changed.set()
            _LOGGER.warning("the engine %s is left out until it answers again: %s", replica.url, reason)

    async def _watch(self, replica: Replica) -> None:
        """Check a replica again and again: leave it out where it does not answer, and let it join where it does."""
        while True:
            try:
                async with asyncio.timeout(min(_CHECK_S, self._timeout_s)):
                    replica.facts = await self._wire.describe(replica.client)
                replica.num_failed = 0
                if not replica.is_up:
                    await self._join(replica)
            except Exception as error:  # whatever a check or the action meets, the replica is not used, and says why
                replica.num_failed += 1
                reason = f"{type(error).__name__}: {error}".rstrip(": ")
                if not replica.is_up:
                    replica.error = reason
                elif not self._num_acting and (replica.num_failed >= _MOST_FAILED_CHECKS or _is_gone(replica, error)):
                    self._leave_out(replica, reason)
                    for limit in replica.limits:
                        if not limit.expired():
                            limit.reschedule(asyncio.get_running_loop().time())
            replica.changed.clear()
            pause_s = _PAUSE_S if replica.is_up else min(_POLL_S * 2 ** min(replica.num_failed, 10), _PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await replica.changed.wait()

    async def _join(self, replica: Replica) -> None:
        """Bring a replica up to date, again where an action on the others came in between, and let it join."""
        num_acted = -1
        while num_acted != self._num_acted or self._num_acting:
            while self._num_acting:
                await asyncio.sleep(_POLL_S)
            num_acted = self._num_acted
            async with asyncio.timeout(self._timeout_s):
                await self._bring_up(self._wire, replica.client)
        replica.is_up, replica.error = True, ""
        _LOGGER.info("the engine %s answers", replica.url)

    def _unreachable(self) -> EngineError:
        reasons = "; ".join(f"{one.url}: {one.error}" for one in self.all if not one.is_up)
        return EngineError(
            f"the engine must answer within {self._timeout_s:g} s (engine.timeout_s), but it did not ({reasons}); "
            "start it again, or correct engine.urls",
            code="engine_unreachable",
        )


def _is_gone(replica: Replica, error: Exception) -> bool:
    """Return True if nothing listens at a replica that answers no request; what starts there has other weights."""
    return isinstance(error, httpx.ConnectError) and not replica.limits


def _prefix_keys(tokens: tuple[int, ...]) -> list[int]:
    """Return a key of each beginning of whole blocks, and one of all tokens."""
    blocks = (tokens[start : start + _BLOCK_TOKENS] for start in range(0, len(tokens), _BLOCK_TOKENS))
    return list(itertools.accumulate(blocks, lambda key, block: hash((key, block)), initial=0))[1:]
