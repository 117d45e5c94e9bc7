"""Replies to one request of a client: several requests for tokens, of which parts arrive from another thread."""

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

from starlette.requests import Request

from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.metrics import ServerMetrics
from agent_tunix.serving.recorder import RolloutCalls


class ClientLeftError(Exception):
    """The client disconnected before its answer was complete."""


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """Tokens of a reply.

    Attributes:
        index: Number of the reply.
        tokens: Tokens since the last part.
        reply: The whole reply, in the last part; None before it.
    """

    index: int
    tokens: TokenReply
    reply: TokenReply | None = None


class Generation:
    """Replies that are being sampled. Leaving its context cancels those that have not ended.

    Args:
        source: Source of the tokens.
        requests: Requests for tokens.
        rollout: Rollout to which they belong; None without a recorder.
        metrics: Counters.
        has_parts: False to wait for whole replies only.

    Raises:
        AgentTunixError: The source refuses a request.
    """

    def __init__(
        self,
        source: TokenSource,
        requests: Sequence[TokenRequest],
        rollout: RolloutCalls | None,
        metrics: ServerMetrics,
        *,
        has_parts: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, TokenReply | None]] = asyncio.Queue()
        self._metrics = metrics
        self._started = time.monotonic()
        self.requests = requests
        self._futures: list[Future[TokenReply]] = []
        submit = source.submit if rollout is None else functools.partial(rollout.submit, source)
        try:
            for index, request in enumerate(requests):
                future = submit(request, functools.partial(self._put, index) if has_parts else None)
                self._futures.append(future)
                metrics.running.inc()
                future.add_done_callback(functools.partial(self._put_end, index))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the replies that have not ended."""
        for future in self._futures:
            future.cancel()

    async def parts(self) -> AsyncGenerator[ReplyPart]:
        """Yield parts of the replies as they arrive, and each reply whole at its end.

        Raises:
            AgentTunixError: The source failed.
            ClientLeftError: The replies were cancelled.
        """
        num_seen = [0] * len(self._futures)
        num_open = len(self._futures)
        try:
            while num_open:
                index, part = await self._events.get()
                if part is not None and not any(num_seen):
                    self._metrics.first_seconds.observe(time.monotonic() - self._started)
                if part is None:
                    reply = self._result(index)
                    num_open -= 1
                    yield ReplyPart(index, _since(reply, num_seen[index]), reply)
                else:
                    num_seen[index] += len(part.tokens)
                    yield ReplyPart(index, part)
        finally:
            if num_open:
                self.cancel()

    async def replies(self, request: Request) -> list[TokenReply]:
        """Return all replies.

        Raises:
            AgentTunixError: The source failed.
            ClientLeftError: The client of the request disconnected.
        """
        ends = asyncio.ensure_future(self._all_ends())
        leaving = asyncio.ensure_future(_until_disconnected(request))
        try:
            await asyncio.wait((ends, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not ends.done():
                raise ClientLeftError
            return ends.result()
        finally:
            for task in (ends, leaving):
                task.cancel()
            self.cancel()

    def call_of(self, index: int, reply: TokenReply | None) -> RecordedCall:
        """Return the record of a reply, or of one that was cancelled."""
        prompt, seconds = self.requests[index].prompt, time.monotonic() - self._started
        if reply is None:
            return RecordedCall(prompt, (), (), 0, "cancelled", seconds=seconds)
        return RecordedCall(
            prompt,
            reply.tokens,
            reply.logps,
            reply.version,
            reply.finish_reason or "stop",
            seconds=seconds,
            num_cached=reply.num_cached,
        )

    async def _all_ends(self) -> list[TokenReply]:
        replies = {part.index: part.reply async for part in self.parts() if part.reply is not None}
        return [replies[index] for index in range(len(self._futures))]

    def _result(self, index: int) -> TokenReply:
        try:
            reply = self._futures[index].result()
        except CancelledError:
            raise ClientLeftError from None
        if reply.finish_reason == "cancelled":
            raise ClientLeftError
        seconds = time.monotonic() - self._started
        self._metrics.count_reply(len(self.requests[index].prompt), reply, seconds)
        return reply

    def _put(self, index: int, part: TokenReply | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, (index, part))

    def _put_end(self, index: int, future: Future[TokenReply]) -> None:
        self._metrics.running.dec()
        self._put(index, None)


def _since(reply: TokenReply, place: int) -> TokenReply:
    """Return the part of a reply from a place on."""
    parts = (reply.tokens[place:], reply.logps[place:], reply.finish_reason, reply.version, reply.num_cached)
    return TokenReply(*parts, reply.alternatives[place:])


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
