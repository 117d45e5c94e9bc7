"""The served policy: what the requests of a server share, and requests for tokens from requests of clients."""

import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from starlette.requests import Request

from agent_tunix.errors import ModelError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import TokenRequest, TokenSource
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.chat import ChatEncoder
from agent_tunix.serving.metrics import ServerMetrics
from agent_tunix.serving.recorder import RolloutCalls, RolloutRecorder
from agent_tunix.serving.routes.parameters import SamplingParameters
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.web.problems import Problem

# Replies to one request.
_MOST_REPLIES = 1024
# Logits divided by a lower temperature may exceed the largest number; so it counts as 0, as in vLLM.
_LEAST_TEMPERATURE = 1e-5
Result = TypeVar("Result")


@runtime_checkable
class AdapterHost(Protocol):
    """A source of tokens that samples with adapters too."""

    @property
    def adapters(self) -> Sequence[str]:
        """Names of the loaded adapters."""
        ...

    def load_adapter(self, name: str, directory: Path) -> None:
        """Load an adapter in PEFT's format; raise AgentTunixError if it does not fit, or the name is taken."""
        ...

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter."""
        ...

    def load_weights(self, directory: Path, version: int) -> Future[None]:
        """Begin to replace the weights, when no request is being answered; the future fails if they do not fit."""
        ...


@dataclass(frozen=True)
class PolicyService:
    """A served policy.

    Attributes:
        source: Source of tokens.
        tokenizer: The policy's tokenizer.
        settings: Settings.
        chat: Encoder of conversations; None for a model without a chat template.
        recorder: Recorder of rollouts; None if calls are not recorded.
        adapters: The source as a host of adapters; None if it hosts none.
        metrics: Counters.
        recent: Recent calls, of which a conversation can continue the tokens.
    """

    source: TokenSource
    tokenizer: Tokenizer
    settings: PolicySettings
    chat: ChatEncoder | None = None
    recorder: RolloutRecorder | None = None
    adapters: AdapterHost | None = None
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    recent: deque[RecordedCall] = field(default_factory=deque)

    def adapter_of(self, model: str | None) -> str | None:
        """Return the adapter that a request names; None for the policy. Raise Problem for an unknown name."""
        if model is None or model == self.settings.model:
            return None
        names = () if self.adapters is None else tuple(self.adapters.adapters)
        if model in names:
            return model
        if self.settings.accepts_any_model:
            return None
        known = ", ".join((self.settings.model, *names))
        raise Problem(404, "model_not_found", f"there is no model {model!r:.80}; served are {known}", "model")

    def encoder(self) -> ChatEncoder:
        """Return the encoder of conversations; raise Problem if there is none."""
        if self.chat is None:
            raise Problem(400, "no_chat_template", "this model has no chat template; use /v1/completions", "messages")
        return self.chat

    def calls_of(self, rollout: RolloutCalls | None) -> Sequence[RecordedCall]:
        """Return the calls of which a conversation of a client can continue the tokens."""
        return tuple(self.recent) if rollout is None else rollout.calls

    def keep(self, rollout: RolloutCalls | None, call: RecordedCall) -> None:
        """Remember a call that has ended, in its rollout or among the recent ones."""
        if rollout is not None:
            rollout.append(call)
        elif call.reply is not None:
            self.recent.append(call)
            while len(self.recent) > self.settings.num_kept_calls:
                self.recent.popleft()

    def token_requests(
        self,
        parameters: SamplingParameters,
        prompts: Sequence[Sequence[int]],
        max_tokens: int | None,
        num_alternatives: int,
        with_prompt_logps: bool = False,
        *,
        caps: bool = False,
    ) -> list[TokenRequest]:
        """Return the requests for tokens, `n` of each prompt side by side.

        Args:
            parameters: Parameters of the client's request.
            prompts: Token ids of each prompt.
            max_tokens: Maximum tokens to sample; None for those that the context has left.
            num_alternatives: Likeliest tokens to report.
            with_prompt_logps: True for the log-probabilities of the prompts too.
            caps: True to shorten replies to what the context has left, instead of refusing longer ones.

        Raises:
            Problem: A prompt is empty, does not fit the context, or has unknown ids; or there are too many replies.
        """
        if not all(prompts) or not prompts:
            raise Problem(400, "empty_prompt", "a prompt must have at least one token", "prompt")
        num_each = parameters.n or 1
        if len(prompts) * num_each > _MOST_REPLIES:
            raise Problem(400, "too_many_replies", f"a request may have at most {_MOST_REPLIES} replies", "n")
        temperature = 1.0 if parameters.temperature is None else parameters.temperature
        common = TokenRequest(
            (),
            0,
            temperature=temperature if temperature >= _LEAST_TEMPERATURE else 0.0,
            top_k=parameters.top_k if (parameters.top_k or 0) > 0 else None,
            top_p=1.0 if parameters.top_p is None else parameters.top_p,
            min_p=parameters.min_p or 0.0,
            stop_ids=tuple(parameters.stop_token_ids or ()),
            stop_strings=parameters.stop_strings,
            num_alternatives=num_alternatives,
            with_prompt_logps=with_prompt_logps,
            adapter=self.adapter_of(parameters.model),
        )
        requests = []
        for prompt in prompts:
            length = self._fitting(prompt, max_tokens, caps=caps)
            requests += [
                dataclasses.replace(
                    common, prompt=tuple(prompt), max_tokens=length, seed=_seed_of(parameters.seed, number)
                )
                for number in range(num_each)
            ]
        return requests

    def _fitting(self, prompt: Sequence[int], max_tokens: int | None, *, caps: bool) -> int:
        """Return the maximum tokens to sample; raise Problem if the prompt cannot be continued by so many."""
        context = self.settings.max_context
        left = context - len(prompt)
        length = left if max_tokens is None or (caps and max_tokens > left) else max_tokens
        if left < max(length, 1):
            raise Problem(
                400,
                "context_length_exceeded",
                f"this model's maximum context length is {context} tokens, but the prompt has {len(prompt)} and at "
                f"least {max(length, 1)} more were requested; shorten the messages or max_tokens",
                "messages",
            )
        return length


def service_of(request: Request) -> PolicyService:
    """Return the policy that handles a request."""
    service: PolicyService = request.app.state.policy
    return service


async def in_thread(call: Callable[[], Result]) -> Result:
    """Run work on what a client sent in a thread; raise Problem for text that cannot be encoded."""
    try:
        return await asyncio.to_thread(call)
    except ModelError as error:
        raise Problem(400, error.code, str(error)) from None


def _seed_of(seed: int | None, number: int) -> int | None:
    """Return the seed of one of the replies to a prompt; that of the first is the client's."""
    if seed is None:
        return None
    return seed % 2**64 if number == 0 else random.Random(f"{seed}/{number}").getrandbits(32)
