"""Questions to a model, with cache, endpoint and accounts."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import Receipt, Totals
from agent_tunix.rewards.judges.cache import ReplyCache, cache_key
from agent_tunix.rewards.judges.endpoint import Endpoint
from agent_tunix.rewards.judges.faults import JudgeFault, MalformedVerdict
from agent_tunix.rewards.judges.limits import JudgeBudget, Timing
from agent_tunix.rewards.judges.pools import Pool
from agent_tunix.rewards.judges.prompts import Message
from agent_tunix.rewards.judges.settings import EndpointSettings

T = TypeVar("T")

# A model that gives no verdict is asked again with another seed.
TRIES_FOR_A_VERDICT = 2


@dataclass(slots=True)
class _Session:
    """State of one event loop while callers score in it."""

    client: httpx.AsyncClient
    users: int = 0
    under_way: dict[str, "asyncio.Future[str]"] = field(default_factory=dict)


class Asker:
    """Client of one model at one endpoint, with an account of all questions in `totals`.

    One object serves all batches of a run, from any thread or event loop. `pool` has the limits that judges share.
    """

    def __init__(self, settings: EndpointSettings, pool: Pool, timing: Timing) -> None:
        self.settings = settings
        self.totals = Totals()
        self._cache = ReplyCache(settings.cache)
        self._endpoint = Endpoint(settings, pool, JudgeBudget(settings.max_requests, settings.max_cost), timing)
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """Keep connections open for questions asked inside, in this event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None:
                session = _Session(self._endpoint.open())
                self._sessions[loop] = session
            session.users += 1
        try:
            yield
        finally:
            session.users -= 1
            if not session.users:
                with self._lock:
                    del self._sessions[loop]
                self._cache.close()
                await session.client.aclose()

    async def ask(
        self,
        messages: Sequence[Message],
        schema: dict[str, Any] | None,
        read: Callable[[str], T],
        receipt: Receipt,
    ) -> T:
        """Ask a question, within a `session`.

        Args:
            messages: The conversation.
            schema: JSON schema of the reply; None: a text.
            read: Function that turns the reply into a value. If it raises MalformedVerdict, the model is asked again.
                Only a reply that it can read is cached.
            receipt: Account that the question is added to.

        Raises:
            JudgeFault: There is no reply, or none that can be read.
        """
        session = self._sessions[asyncio.get_running_loop()]
        key = self._key(messages, schema)
        failed = True
        try:
            value = await self._ask(session, key, messages, schema, read, receipt)
            failed = False
            return value
        finally:
            self.totals.add(receipt, failed=failed)

    async def _ask(
        self,
        session: _Session,
        key: str,
        messages: Sequence[Message],
        schema: dict[str, Any] | None,
        read: Callable[[str], T],
        receipt: Receipt,
    ) -> T:
        while (twin := session.under_way.get(key)) is not None:
            try:
                reply = await asyncio.shield(twin)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not twin.cancelled() or (task is not None and task.cancelling()):
                    raise
                continue  # the first caller was cancelled, this one was not
            receipt.is_cached = True
            return read(reply)
        if (kept := self._cache.get(key)) is not None:
            try:
                value = read(str(kept.get("reply")))
                receipt.is_cached = True
                return value
            except MalformedVerdict:
                self._cache.remove(key)
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        session.under_way[key] = future
        try:
            reply, value = await self._ask_endpoint(session, messages, schema, read, receipt)
            self._cache.put(key, {"reply": reply})
            future.set_result(reply)
            return value
        except JudgeFault as fault:
            future.set_exception(fault)
            future.exception()  # marks the exception as retrieved, because nobody may be waiting
            raise
        finally:
            del session.under_way[key]
            future.cancel()

    async def _ask_endpoint(
        self,
        session: _Session,
        messages: Sequence[Message],
        schema: dict[str, Any] | None,
        read: Callable[[str], T],
        receipt: Receipt,
    ) -> tuple[str, T]:
        for attempt in range(TRIES_FOR_A_VERDICT):
            try:
                seed = self.settings.seed + attempt
                reply = await self._endpoint.ask(session.client, messages, schema, receipt, seed)
                return reply, read(reply)
            except MalformedVerdict as fault:
                last = fault
        raise last

    def _key(self, messages: Sequence[Message], schema: dict[str, Any] | None) -> str:
        settings = self.settings
        return cache_key(
            {
                "version": prompts.VERSION,
                "base_url": settings.base_url,
                "model": settings.model,
                "messages": list(messages),
                "schema": schema,
                "structured": settings.structured,
                "temperature": settings.temperature,
                "seed": settings.seed,
                "max_tokens": settings.max_tokens,
                "extra_body": dict(settings.extra_body),
            }
        )
