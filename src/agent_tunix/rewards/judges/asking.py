"""Questions to a model, with cache and accounts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar

from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import JudgeTally, Receipt
from agent_tunix.rewards.judges.cache import ReplyCache, cache_key
from agent_tunix.rewards.judges.faults import JudgeFault, MalformedVerdict
from agent_tunix.rewards.judges.prompts import JudgeQuestion
from agent_tunix.rewards.judges.settings import EndpointSettings

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.endpoint import Endpoint
    from agent_tunix.rewards.judges.local import LocalEndpoint

T = TypeVar("T")

# A model that gives no verdict is asked again with another seed.
TRIES_FOR_A_VERDICT = 2

# Settings that decide a reply, besides the messages.
_DECIDING = {"base_url", "model", "structured", "temperature", "seed", "max_tokens", "extra_body"}


class Asker:
    """Client of one model, which serves all batches of a judge in one event loop.

    `total` is the account of all questions.
    """

    def __init__(self, settings: EndpointSettings, endpoint: "Endpoint | LocalEndpoint") -> None:
        self.settings = settings
        self.total = JudgeTally()
        self._step = JudgeTally()
        self._cache = ReplyCache(settings.cache)
        self._endpoint = endpoint
        self._client: Any = None
        self._num_sessions = 0
        self._under_way: dict[str, asyncio.Future[str]] = {}

    def check(self) -> None:
        """Raise RewardError if the key is not set or a proxy of the environment cannot be used."""
        self._endpoint.open()

    def take_step(self) -> JudgeTally:
        """Return the account of the questions since the last call."""
        step, self._step = self._step, JudgeTally()
        return step

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """Keep connections and the cache open for questions asked inside."""
        if self._client is None:
            self._client = self._endpoint.open()
        self._num_sessions += 1
        try:
            yield
        finally:
            self._num_sessions -= 1
            if not self._num_sessions:
                client, self._client = self._client, None
                self._cache.close()
                await client.close()

    async def ask(self, question: JudgeQuestion[T], receipt: Receipt) -> T:
        """Ask a question, within a `session`, and add it to an account. Only a reply that can be read is cached.

        Raises:
            JudgeFault: There is no reply, or none that can be read.
        """
        deciding = self.settings.model_dump(mode="json", include=_DECIDING) | self._endpoint.identify()
        content = {"version": prompts.VERSION, "messages": list(question.messages), "schema": question.schema}
        key = cache_key({**content, **deciding})
        spent = Receipt(questions=1)
        failed = True
        try:
            value = await self._ask(key, question, spent)
            failed = False
            return value
        finally:
            for account in (self.total, self._step):
                account.count(spent, failed=failed)
            receipt.add(spent)

    async def _ask(self, key: str, question: JudgeQuestion[T], receipt: Receipt) -> T:
        while (twin := self._under_way.get(key)) is not None:
            try:
                reply = await asyncio.shield(twin)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not twin.cancelled() or (task is not None and task.cancelling()):
                    raise
                continue  # the first caller was cancelled, this one was not
            receipt.cache_hits = 1
            return question.read(reply)
        if (cached := self._cache.get(key)) is not None:
            with contextlib.suppress(MalformedVerdict):
                value = question.read(cached)
                receipt.cache_hits = 1
                return value
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._under_way[key] = future
        try:
            reply, value = await self._ask_endpoint(question, receipt)
            self._cache.put(key, reply)
            future.set_result(reply)
            return value
        except JudgeFault as fault:
            future.set_exception(fault)
            future.exception()  # marks the exception as retrieved, because nobody may be waiting
            raise
        finally:
            del self._under_way[key]
            future.cancel()

    async def _ask_endpoint(self, question: JudgeQuestion[T], receipt: Receipt) -> tuple[str, T]:
        assert self._client is not None
        for attempt in range(TRIES_FOR_A_VERDICT):
            try:
                reply = await self._endpoint.ask(self._client, question, self.settings.seed + attempt, receipt)
                return reply, question.read(reply)
            except MalformedVerdict as fault:
                last = fault
        raise last
