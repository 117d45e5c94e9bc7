"""Answers to requests for replies: whole, or in events (server-sent events) as the tokens arrive."""

import abc
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
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
from agent_tunix.serving.routes.generation import ClientLeftError, Generation, ReplyPart
from agent_tunix.serving.routes.parameters import SamplingParameters
from agent_tunix.serving.routes.reply_text import ReplyText
from agent_tunix.web.problems import Json, Problem, internal_error

_LOGGER = logging.getLogger("agent_tunix.serving")
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Answer(abc.ABC):
    """An answer in one of the two forms of OpenAI's API.

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
    chunk_object = ""

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
        self._rollout = rollout
        if rollout is not None:
            requests = [rollout.adjusted(one) for one in requests]
        decode = service.tokenizer.decode
        self.texts = [ReplyText(decode, one.stop_strings, call_format) for one in requests]
        self._open = set(range(len(requests)))
        self._id = f"{self.prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())
        is_stream = bool(parameters.stream)
        self.generation = Generation(service.source, requests, rollout, service.metrics, has_parts=is_stream)

    @abc.abstractmethod
    def whole(self, replies: Sequence[TokenReply]) -> Any:
        """Return the answer with all replies."""

    @abc.abstractmethod
    def begin(self) -> Iterator[dict[str, Any]]:
        """Yield the choices of the events before any token."""

    @abc.abstractmethod
    def add(self, part: ReplyPart) -> Iterator[dict[str, Any]]:
        """Yield the choices of the events for a part of a reply."""

    def prompt_fields(self) -> dict[str, Any]:
        """Return the fields of the answer, or of the first events, that tell the prompt."""
        return {}

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the events of a stream."""
        options = self.parameters.stream_options
        usage = {"usage": None} if options is not None and options.include_usage else {}
        replies: list[TokenReply] = []
        head: dict[str, Any] = {}
        try:
            async with contextlib.aclosing(self.generation.parts()) as parts:
                async for part in parts:
                    for choice in () if head else self.begin():
                        head = self.head(self.chunk_object, part.tokens)
                        yield head | {"choices": [choice]} | usage | self.prompt_fields()
                    head = self.head(self.chunk_object, part.tokens)
                    for choice in self.add(part):
                        yield head | {"choices": [choice]} | usage
                    if part.reply is not None:
                        replies.append(part.reply)
            if usage:
                yield head | {"choices": [], "usage": usage_of(self.prompts, replies)}
        finally:
            self.keep_cancelled()

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """The token ids of each prompt."""
        return [request.prompt for request in self.generation.requests[:: self.parameters.n or 1]]

    def head(self, kind: str, reply: TokenReply) -> dict[str, Any]:
        """Return the fields that the answer and its events share; the fingerprint names the policy's version."""
        model = self.parameters.model or self.service.settings.model
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": model,
            "system_fingerprint": f"version-{reply.version}",
        }

    def keep(self, call: RecordedCall, index: int) -> None:
        """Remember the call of a reply that has ended, or was cancelled."""
        self._open.discard(index)
        self.service.keep(self._rollout, call)

    def keep_cancelled(self) -> None:
        """Remember the calls that have no reply."""
        for index in sorted(self._open):
            self.keep(self.generation.call_of(index, None), index)

    @property
    def is_of_ended_rollout(self) -> bool:
        """True if the rollout has ended since the request came."""
        return self._rollout is not None and self._rollout.is_closed


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
    try:
        return Json(answer.whole(await answer.generation.replies(request)))
    except ClientLeftError:
        if answer.is_of_ended_rollout:
            raise rollout_ended() from None
        return Response(status_code=499)  # nobody reads it
    finally:
        answer.keep_cancelled()


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
