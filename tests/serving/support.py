"""A real server on the loopback over a source of tokens that follows a script."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import openai

import agent_tunix
from agent_tunix.config.schema import PromptConfig
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.errors import OverloadedError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.serving.app import create_app
from agent_tunix.serving.chat import ChatEncoder
from agent_tunix.serving.policy_service import PolicyService
from agent_tunix.serving.recorder import RolloutRecorder
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings

MODEL = Path(agent_tunix.__file__).parent / "assets" / "tiny_tools"


def open_tokenizer() -> Tokenizer:
    """The tokenizer of the embedded model with tools."""
    return Tokenizer(MODEL, PromptConfig())


class ScriptedSource:
    """A source whose replies a function writes.

    Attributes:
        requests: Requests that came.
        is_full: True to refuse requests.
        hold: Event for which every reply waits after its first part.
        cancelled: Set when a reply was cancelled.
    """

    def __init__(self, tokenizer: Tokenizer, write: Callable[[str], str], part_size: int = 3) -> None:
        self.tokenizer = tokenizer
        self.write = write
        self.requests: list[TokenRequest] = []
        self.is_full = False
        self.adapters: list[str] = []
        self.hold = threading.Event()
        self.hold.set()
        self.cancelled = threading.Event()
        self._part_size = part_size
        self._threads = ThreadPoolExecutor(8)

    def load_adapter(self, name: str, directory: Path) -> None:
        """Remember an adapter."""
        self.adapters.append(name)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter."""
        self.adapters.remove(name)

    def load_weights(self, directory: Path, version: int) -> Future[None]:
        """Take other weights, which change nothing."""
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Reply to a prompt with what the script says, and the end-of-sequence token."""
        if self.is_full:
            raise OverloadedError("8 requests wait already")
        self.requests.append(request)
        future: Future[TokenReply] = Future()
        self._threads.submit(self._reply, request, on_part, future)
        return future

    def _reply(
        self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None, future: Future[TokenReply]
    ) -> None:
        try:
            text = self.write(self.tokenizer.decode(request.prompt))
        except Exception as error:
            future.set_exception(error)
            return
        tokens = [*self.tokenizer.encode(text, allow_special=False), self.tokenizer.eos_id()]
        reason = "stop" if len(tokens) <= request.max_tokens else "length"
        reply = reply_of(request, tokens[: request.max_tokens], reason)
        for start in range(0, len(reply.tokens), self._part_size):
            part = slice(start, start + self._part_size)
            if on_part is not None:
                on_part(TokenReply(reply.tokens[part], reply.logps[part], None, alternatives=reply.alternatives[part]))
            self.hold.wait(20)
            if future.cancelled():
                self.cancelled.set()
                return
        if future.set_running_or_notify_cancel():
            future.set_result(reply)

    def close(self) -> None:
        """End the threads."""
        self.hold.set()
        self._threads.shutdown()


def reply_of(request: TokenRequest, tokens: Sequence[int], reason: str, version: int = 3) -> TokenReply:
    """A reply with log-probabilities that tell the place of a token."""
    logps = tuple(-0.25 * (place % 4) for place in range(len(tokens)))
    others = tuple(tuple((token + one, -0.5 - one) for one in range(request.num_alternatives)) for token in tokens)
    reply = TokenReply(tuple(tokens), logps, reason, version, 2, others if request.num_alternatives else ())
    if not request.with_prompt_logps:
        return reply
    prompt_logps = (None, *(-1.0 for _ in request.prompt[1:]))
    prompt_others = tuple(((token, -1.0),) if place else () for place, token in enumerate(request.prompt))
    return dataclasses.replace(
        reply, prompt_logps=prompt_logps, prompt_alternatives=prompt_others if request.num_alternatives else ()
    )


@dataclasses.dataclass(frozen=True)
class Running:
    """A running server."""

    url: str
    source: ScriptedSource
    service: PolicyService
    recorder: RolloutRecorder | None
    clients: contextlib.ExitStack

    def openai(self, key: str = "none") -> openai.OpenAI:
        """A client, which is closed with the server."""
        return self.clients.enter_context(openai.OpenAI(base_url=self.url, api_key=key, timeout=30, max_retries=0))

    def http(self, key: str | None = None) -> httpx.Client:
        """A plain client of the server's root."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url.removesuffix("/v1"), headers=headers, timeout=30)


@contextlib.contextmanager
def running(
    write: Callable[[str], str] = lambda prompt: "I see.",
    *,
    recorder: RolloutRecorder | None = None,
    settings: PolicySettings | None = None,
    part_size: int = 3,
) -> Iterator[Running]:
    """Serve a script."""
    tokenizer = open_tokenizer()
    source = ScriptedSource(tokenizer, write, part_size)
    chat = ChatEncoder(EpisodeEncoder(tokenizer, PromptConfig()))
    settings = settings or PolicySettings(port=0)
    service = PolicyService(source, tokenizer, settings, chat, recorder, source)
    try:
        with serving(create_app(service), settings) as url, contextlib.ExitStack() as clients:
            yield Running(url, source, service, recorder, clients)
    finally:
        source.close()
