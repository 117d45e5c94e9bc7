"""Answers to requests for replies: whole, or in events (server-sent events) as the tokens arrive."""

import abc
import asyncio
import contextlib
import functools
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from agent_tunix.environments import ToolCallFormat
from agent_tunix.errors import AgentTunixError, OverloadedError, RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.recorder import RolloutCalls, rollout_ended
from agent_tunix.serving.routes.answers import usage_of
from agent_tunix.serving.routes.parameters import SamplingParameters
from agent_tunix.serving.routes.reply_text import ReplyText
from agent_tunix.web.problems import Json, Problem, internal_error

_LOGGER = logging.getLogger("agent_tunix.serving")
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class ClientLeftError(Exception):
    """The client disconnected, or its rollout ended, before its answer was complete."""


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


class Answer(abc.ABC):
    """An answer in one of the two forms of OpenAI's API, whose replies begin to be sampled with it.

    Args:
        service: The policy.
        parameters: Parameters of the client's request.
        requests: Requests for the tokens of the replies.
        rollout: Rollout to which the replies belong; None without a recorder.
        call_format: Format in which calls of tools are read; None if none are.

    Raises:
        AgentTunixError: The source of tokens refuses a request.
    """

    prefix = ""  # of the answer's id
    whole_object = ""
    chunk_object = ""
    # Of the recorded calls of a conversation.
    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[Mapping[str, Any]] = ()

    def __init__(
        self,
        service: PolicyService,
        parameters: SamplingParameters,
        requests: Sequence[TokenRequest],
        rollout: RolloutCalls | None,
        call_format: ToolCallFormat | None = None,
    ) -> None:
        self.service = service
        self.parameters = parameters
        self.rollout = rollout
        self.requests = requests if rollout is None else [rollout.adjusted(one) for one in requests]
        decode = service.tokenizer.decode
        self.texts = [ReplyText(decode, one.stop_strings, call_format) for one in self.requests]
        self._open = set(range(len(requests)))
        self._id = f"{self.prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._started = time.monotonic()
        self._loop = asyncio.get_running_loop()
        # Numbers of replies with their parts, which arrive from another thread; None at the end of a reply.
        self._events: asyncio.Queue[tuple[int, TokenReply | None]] = asyncio.Queue()
        self._futures: list[Future[TokenReply]] = []
        submit = service.source.submit if rollout is None else functools.partial(rollout.submit, service.source)
        try:
            for index, request in enumerate(self.requests):
                future = submit(request, functools.partial(self._put, index) if parameters.stream else None)
                self._futures.append(future)
                service.metrics.running.inc()
                future.add_done_callback(functools.partial(self._put_end, index))
        except BaseException:
            self._cancel()
            raise

    @abc.abstractmethod
    def choice(self, index: int, reply: TokenReply) -> dict[str, Any]:
        """Return the choice of the whole answer for a reply, and keep its call."""

    @abc.abstractmethod
    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the choices of the events before any token."""

    @abc.abstractmethod
    def add(self, part: ReplyPart) -> Iterator[dict[str, Any]]:
        """Yield the choices of the events for a part of a reply."""

    def prompt_fields(self) -> dict[str, Any]:
        """Return the fields of the answer, or of the first events, that tell the prompt."""
        return {}

    async def whole(self) -> dict[str, Any]:
        """Return the answer with all replies.

        Raises:
            AgentTunixError: The source failed.
            ClientLeftError: The replies were cancelled.
        """
        ends = {part.index: part.reply async for part in self._parts() if part.reply is not None}
        replies = [ends[index] for index in range(len(ends))]
        for text, reply in zip(self.texts, replies, strict=True):
            text.add(reply.tokens)
        choices = [{"index": index, **self.choice(index, reply)} for index, reply in enumerate(replies)]
        answer = self._head(self.whole_object, replies[0])
        return answer | {"choices": choices, "usage": usage_of(self.prompts, replies)} | self.prompt_fields()

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a stream; see `whole`."""
        options = self.parameters.stream_options
        usage = {"usage": None} if options is not None and options.include_usage else {}
        replies: list[TokenReply] = []
        head: dict[str, Any] = {}
        try:
            async with contextlib.aclosing(self._parts()) as parts:
                async for part in parts:
                    for choice in () if head else self.begin():
                        head = self._head(self.chunk_object, part.tokens)
                        yield head | {"choices": [choice]} | usage | self.prompt_fields()
                    head = self._head(self.chunk_object, part.tokens)
                    for choice in self.add(part):
                        yield head | {"choices": [choice]} | usage
                    if part.reply is not None:
                        replies.append(part.reply)
            if usage:
                yield head | {"choices": [], "usage": usage_of(self.prompts, replies)}
        finally:
            self.close()

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """The token ids of each prompt."""
        return [request.prompt for request in self.requests[:: self.parameters.n or 1]]

    def keep(self, index: int, reply: TokenReply, message: Mapping[str, Any] | None = None) -> None:
        """Remember the call of a reply, of a conversation with the message that is returned."""
        self._open.discard(index)
        call = RecordedCall(
            self.requests[index].prompt,
            reply.tokens,
            reply.logps,
            reply.version,
            reply.finish_reason or "stop",
            self.messages,
            message,
            self.tools,
            time.monotonic() - self._started,
            reply.num_cached,
        )
        self.service.keep(self.rollout, call)

    def close(self) -> None:
        """Cancel the replies that have not ended, and remember their calls."""
        self._cancel()
        for index in sorted(self._open):
            self.keep(index, TokenReply((), (), "cancelled"))

    def _head(self, kind: str, reply: TokenReply) -> dict[str, Any]:
        """Return the fields that the answer and its events share; the fingerprint names the policy's version."""
        model = self.parameters.model or self.service.settings.model
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": model,
            "system_fingerprint": f"version-{reply.version}",
        }

    async def _parts(self) -> AsyncGenerator[ReplyPart]:
        """Yield parts of the replies as they arrive, and each reply whole at its end."""
        num_seen = [0] * len(self._futures)
        num_open = len(self._futures)
        try:
            while num_open:
                index, part = await self._events.get()
                if part is None:
                    reply, seen = self._result(index), num_seen[index]
                    num_open -= 1
                    rest = replace(
                        reply,
                        tokens=reply.tokens[seen:],
                        logps=reply.logps[seen:],
                        alternatives=reply.alternatives[seen:],
                    )
                    yield ReplyPart(index, rest, reply)
                else:
                    if not any(num_seen):
                        self.service.metrics.first_seconds.observe(time.monotonic() - self._started)
                    num_seen[index] += len(part.tokens)
                    yield ReplyPart(index, part)
        finally:
            self._cancel()

    def _result(self, index: int) -> TokenReply:
        try:
            reply = self._futures[index].result()
        except CancelledError:
            raise ClientLeftError from None
        if reply.finish_reason == "cancelled":
            raise ClientLeftError
        seconds = time.monotonic() - self._started
        self.service.metrics.count_reply(len(self.requests[index].prompt), reply, seconds)
        return reply

    def _cancel(self) -> None:
        for future in self._futures:
            future.cancel()

    def _put(self, index: int, part: TokenReply | None) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._events.put_nowait, (index, part))

    def _put_end(self, index: int, future: Future[TokenReply]) -> None:
        self.service.metrics.running.dec()
        self._put(index, None)


class _EventStream(StreamingResponse):
    """A stream whose source ends with it, also when the client leaves."""

    async def stream_response(self, send: Send) -> None:
        """Send the events."""
        async with contextlib.aclosing(self.body_iterator):  # type: ignore[type-var]  # an async generator
            await super().stream_response(send)


async def respond(request: Request, answer: Answer) -> Response:
    """Return the response with an answer, whole or as a stream."""
    if answer.parameters.stream:
        return _EventStream(_lines(answer), media_type="text/event-stream", headers=_HEADERS)
    whole, leaving = asyncio.ensure_future(answer.whole()), asyncio.ensure_future(_until_disconnected(request))
    try:
        await asyncio.wait((whole, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not whole.done():
            raise ClientLeftError
        return Json(whole.result())
    except ClientLeftError:
        if answer.rollout is not None and answer.rollout.is_closed:
            raise rollout_ended() from None
        return Response(status_code=499)  # nobody reads it
    finally:
        whole.cancel()
        leaving.cancel()
        answer.close()


async def _until_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _lines(answer: Answer) -> AsyncGenerator[str]:
    """Yield the events of a stream as text. A fault becomes an event."""
    try:
        async with contextlib.aclosing(answer.events()) as events:
            async for event in events:
                yield _line(event)
    except ClientLeftError:
        yield _line(rollout_ended().to_data())
    except Exception as error:  # the client gets an answer to any defect of ours
        problem = problem_of(error) if isinstance(error, AgentTunixError) else internal_error()
        if problem.status >= 500:
            _LOGGER.error("a stream failed", exc_info=error)
        yield _line(problem.to_data())
    else:
        yield "data: [DONE]\n\n"


def _line(data: Any) -> str:
    return f"data: {json.dumps(data, allow_nan=False, separators=(',', ':'))}\n\n"


def problem_of(error: AgentTunixError) -> Problem:
    """Return the problem for an error of the package; errors that may contain internals become general ones."""
    if isinstance(error, OverloadedError):
        return Problem(429, error.code, str(error))
    if isinstance(error, RequestRefusedError):
        return Problem(400, error.code, str(error))
    return internal_error()
