"""Client of a served policy for `agent-tunix generate URL`.

The server may be that of `agent-tunix serve-policy`, or another that speaks OpenAI's chat completions. It samples, so
this process loads neither JAX nor weights. Importing this module loads no HTTP client.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Any

from agent_tunix.closing import Closing
from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.data import Example
from agent_tunix.errors import ConfigError, RequestRefusedError, ServiceError
from agent_tunix.proxies import describe_proxy, is_loopback
from agent_tunix.rewards import Sample
from agent_tunix.store.home import shown_url
from agent_tunix.training.generation import Completer, Completion
from agent_tunix.training.generator_setup import GenerationSettings

_REQUESTS_AT_ONCE = 64


class ServedPolicy(Completer, Closing):
    """A policy at a server, as a `Completer`.

    Args:
        url: URL of the server, with or without `/v1`.
        settings: Sampling, number and seed; without `max_new_tokens`, the server limits completions.
        model: Name of the model; None: the first that the server lists.
        key_variable: Environment variable that holds the key; None: no key is sent.
        prompt: Settings of the messages. The server renders them with its chat template.
        stop_strings: Strings that end a completion.
        raw: True to continue texts without a chat template.

    Raises:
        ConfigError: The settings contradict each other, the package openai is missing, or the key or the URL cannot be
            used.
        ServiceError: The server does not answer.
        RequestRefusedError: The server refuses the key, or lists no model.
    """

    def __init__(
        self,
        url: str,
        settings: GenerationSettings,
        prompt: PromptConfig,
        stop_strings: Sequence[str] = (),
        *,
        model: str | None,
        key_variable: str | None,
        raw: bool,
    ) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(
                f"{error}; a served policy requires the package openai: pip install 'agent_tunix[judge]'",
                code="missing_package",
            ) from error
        self.config = Config(prompt=prompt)
        self._parameters = _parameters(settings) | ({"stop": list(stop_strings)} if stop_strings else {})
        self._raw = raw
        self._place = f"{shown_url(url)}{describe_proxy(url)}"
        try:
            self._client = openai.AsyncOpenAI(
                base_url=f"{url.rstrip('/').removesuffix('/v1')}/v1",
                api_key=_read_key(key_variable, self._place),
                organization="",  # not that of OpenAI's own key in the environment
                project="",
                http_client=openai.DefaultAsyncHttpxClient(trust_env=not is_loopback(url), follow_redirects=False),
            )
        except (ValueError, ImportError) as error:  # an invalid URL or proxy
            raise ConfigError(f"{self._place} cannot be used: {error}", code="invalid_request") from error
        self._loop = asyncio.Runner()
        self._model = model or self._loop.run(self._first_model())

    def close(self) -> None:
        """Give up requests that are under way, and close the connections."""
        if not self._client.is_closed():
            self._loop.run(self._client.close())
        self._loop.close()

    def complete(self, examples: Sequence[Example]) -> Iterator[list[Completion]]:
        """Yield the completions of each example, in order. Many requests are under way at a time."""
        return self._complete_each(examples, [self.messages(example) for example in examples])

    def complete_messages(
        self, examples: Sequence[Example], messages: Sequence[list[dict[str, Any]]]
    ) -> list[list[Completion]]:
        """Return the completions of each conversation, as `complete` does."""
        return list(self._complete_each(examples, messages))

    def _complete_each(
        self, examples: Sequence[Example], messages: Sequence[list[dict[str, Any]]]
    ) -> Iterator[list[Completion]]:
        gate = asyncio.Semaphore(_REQUESTS_AT_ONCE)
        loop = self._loop.get_loop()
        pairs = zip(examples, messages, strict=True)
        tasks = [loop.create_task(self._complete_one(gate, *pair)) for pair in pairs]
        try:
            for task in tasks:
                yield self._loop.run(_wait_for(task))
        finally:
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # of several that failed, the first is told
                task.cancel()

    async def _complete_one(
        self, gate: asyncio.Semaphore, example: Example, messages: list[dict[str, Any]]
    ) -> list[Completion]:
        async with gate:
            answer = await self._ask(example, messages)
        return [_completion(example, messages, choice) for choice in answer.choices]

    async def _ask(self, example: Example, messages: list[Any]) -> Any:
        import openai

        body: dict[str, Any] = {"model": self._model, "extra_body": self._parameters}
        try:
            if self._raw:
                text = "".join(str(message["content"]) for message in messages)
                return await self._client.completions.create(prompt=text, **body)
            return await self._client.chat.completions.create(messages=messages, **body)
        except openai.APIError as error:
            raise self._failure(error, f"row {example.index}: ") from error

    async def _first_model(self) -> str:
        import openai

        try:
            models = [model.id async for model in self._client.models.list()]
        except openai.APIError as error:
            raise self._failure(error) from error
        if not models:
            raise RequestRefusedError(f"{self._place} must list a model, but lists none; name one by --model")
        return models[0]

    def _failure(self, error: Exception, row: str = "") -> ServiceError | RequestRefusedError:
        status = getattr(error, "status_code", None)
        if status is None:
            reason = error.__cause__ or error
            return ServiceError(
                f"{row}{self._place} must answer, but does not: {reason}; check the URL, and that the server runs",
                code="unreachable_server",
            )
        advice = "; set --api-key-env to the environment variable with its key" if status == 401 else ""
        return RequestRefusedError(f"{row}{self._place}: {error}{advice}")


def _parameters(settings: GenerationSettings) -> dict[str, Any]:
    """Return the fields of each request besides the model and the prompt."""
    sampling = settings.sampling_values()
    if sampling.pop("greedy", False):
        sampling = {"temperature": 0.0}
    fields = {**sampling, "n": settings.num_generations, "seed": settings.seed, "max_tokens": settings.max_new_tokens}
    return {name: value for name, value in fields.items() if value is not None} | {"return_token_ids": True}


def _completion(example: Example, messages: list[dict[str, Any]], choice: Any) -> Completion:
    """Return a choice of a chat completion, or of a completion of text, as a completion."""
    text = (choice.text if hasattr(choice, "text") else choice.message.content) or ""
    tokens = tuple((choice.model_extra or {}).get("token_ids") or ())
    sample = Sample(
        response=text,
        prompt=example.prompt,
        messages=(*messages, {"role": "assistant", "content": text}),
        columns=example.columns,
        num_tokens=len(tokens),
        ended=choice.finish_reason != "length",
        tokens=tokens,
    )
    return Completion(sample, None)


async def _wait_for(task: asyncio.Task[list[Completion]]) -> list[Completion]:
    return await task


def _read_key(variable: str | None, place: str) -> str:
    """Return the key of an environment variable, or a placeholder, which the client requires."""
    if variable is None:
        return "none"
    key = os.environ.get(variable, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        state = "has characters that no HTTP header can have" if key else "is not set"
        raise ConfigError(
            f"the environment variable {variable} must hold the key of {place}, but {state}; export the key, or set "
            "--api-key-env to another variable",
            code="invalid_request",
        )
    return key
