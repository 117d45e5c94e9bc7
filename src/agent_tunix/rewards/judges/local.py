"""Judges whose model this process samples itself, on its own devices, without an endpoint.

Questions that arrive together are answered together: those of a step, of all judges that have the model. This module
gathers them. The model's weights and its sampler belong to the run, in a room above this one. They are imported by name
when such a judge is first used, so rewards import no JAX.
"""

import asyncio
import importlib
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.faults import JudgeFault, MalformedVerdict
from agent_tunix.rewards.judges.limits import JudgeBudget
from agent_tunix.rewards.judges.prompts import JudgeQuestion, Message
from agent_tunix.rewards.judges.settings import EndpointSettings

_MODELS = "agent_tunix.runs.weights.judge_models"
# Questions wait until none has arrived for so long, because several judges of a step begin one after the other.
_GATHER_S = 0.005
# One thread for all models. Programs of several threads might reach the devices of a mesh in different orders.
_SAMPLING = ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge-model")


class ModelKey(NamedTuple):
    """The arguments that decide the weights of a judge's model. Judges with equal ones share it."""

    model: str
    quantization: str | None
    dtype: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A question for a model: a conversation, the settings of the judge that asks, and a seed."""

    messages: Sequence[Message]
    settings: EndpointSettings
    seed: int


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply: its text, its tokens, and True if it ended by itself."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    ended: bool


class ChatModel(Protocol):
    """A model on the devices of this process. Its methods are called in one thread."""

    def check(self) -> None:
        """Raise ModelError if the model's files are on this disk and cannot be used. It loads nothing."""
        ...

    def digest(self, *, fetch: bool = True) -> str | None:
        """Return a digest of the model's files; None if they are not on this disk and are not to be fetched."""
        ...

    def reply(self, requests: Sequence[ModelRequest]) -> Iterator[list[tuple[int, ModelReply | JudgeFault]]]:
        """Yield the replies of one program after another, each with the position of its request."""
        ...


class ModelQueue:
    """The questions that wait for a model. All judges ask in one event loop, so it needs no lock."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._waiting: list[tuple[ModelRequest, asyncio.Future[ModelReply]]] = []
        self._server: asyncio.Task[None] | None = None

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Return the reply to a question; raise JudgeFault if its prompt is too long."""
        future: asyncio.Future[ModelReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._server is None:
            self._server = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        try:
            while self._waiting:
                count = 0
                while count < len(self._waiting):
                    count = len(self._waiting)
                    await asyncio.sleep(_GATHER_S)
                batch, self._waiting = [one for one in self._waiting if not one[1].done()], []
                await self._answer(batch)
        finally:
            self._server = None

    async def _answer(self, batch: Sequence[tuple[ModelRequest, "asyncio.Future[ModelReply]"]]) -> None:
        loop, futures = asyncio.get_running_loop(), [future for _, future in batch]
        try:
            replies = self.model.reply([request for request, _ in batch])
            # An interrupt cancels the futures; no further program then starts.
            while not all(future.done() for future in futures):
                part: list[tuple[int, ModelReply | JudgeFault]] = await loop.run_in_executor(_SAMPLING, next, replies)
                for place, reply in part:
                    if futures[place].done():
                        continue
                    if isinstance(reply, JudgeFault):
                        futures[place].set_exception(reply)
                    else:
                        futures[place].set_result(reply)
        except Exception as error:  # the model cannot be loaded, or the device has no memory left
            for future in futures:
                if not future.done():
                    future.set_exception(error)


class LocalEndpoint:
    """A model in this process, asked as an endpoint is (`asking.ChatEndpoint`)."""

    def __init__(self, settings: EndpointSettings, queue: ModelQueue) -> None:
        self._settings = settings
        self._queue = queue
        self._budget = JudgeBudget(settings.max_requests, None)

    def open(self) -> "LocalEndpoint":
        """Return itself; raise ModelError if the model's files cannot be used."""
        self._queue.model.check()
        return self

    async def close(self) -> None:
        """Do nothing: the model stays until no judge has it."""

    def identify(self) -> dict[str, Any]:
        """Return the weights, their storage and what the chat template gets."""
        return {"weights": self._queue.model.digest(), **key_of(self._settings)._asdict()}

    async def ask(self, client: Any, question: JudgeQuestion[Any], seed: int, receipt: Receipt) -> str:
        """Return the text of the reply.

        Raises:
            JudgeFault: The budget is spent, the prompt is too long, or the reply was cut off.
            MalformedVerdict: The reply is empty.
        """
        self._budget.reserve(0.0)
        receipt.requests += 1
        started = time.perf_counter()
        reply = await self._queue.ask(ModelRequest(question.messages, self._settings, seed))
        receipt.latency_s += time.perf_counter() - started
        receipt.prompt_tokens += reply.prompt_tokens
        receipt.completion_tokens += reply.completion_tokens
        if not reply.ended:
            raise JudgeFault("the judge's reply was cut off; raise `max_tokens`")
        if not reply.text.strip():
            raise MalformedVerdict("the judge's reply is empty")
        return reply.text


def key_of(settings: EndpointSettings) -> ModelKey:
    """Return the key of a judge's model."""
    return ModelKey(settings.model, settings.quantization, settings.dtype)


_queues: weakref.WeakValueDictionary[ModelKey, ModelQueue] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def join_model(settings: EndpointSettings) -> ModelQueue:
    """Return the queue of a judge's model, which all judges with this model share. Nothing is loaded yet."""
    key = key_of(settings)
    with _lock:
        if (queue := _queues.get(key)) is None:
            queue = _queues[key] = ModelQueue(importlib.import_module(_MODELS).JudgeModel(key))
    return queue
