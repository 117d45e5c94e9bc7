"""vLLM's routes: `/v1/completions` with token ids, adapters by name, and weights that are read again.

Adapters need a server with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`; whole weights one with `VLLM_SERVER_DEV_MODE=1`.
The log-probabilities are of the sampling temperature only with `--logprobs-mode processed_logprobs`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines import replies
from agent_tunix.engines.http import call
from agent_tunix.engines.wire import EngineFacts
from agent_tunix.errors import RequestRefusedError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

# Seeds on the wire have 64 bits and a sign.
_SEEDS = 2**64


class VllmWire:
    """The routes of vLLM; see `Wire`.

    Args:
        base_model: Name of the model that the engines serve.
        vocab_size: Number of its tokens; a reply with another one is an error. None: they are not checked.
    """

    kind: ClassVar[str] = "vllm"

    def __init__(self, base_model: str, vocab_size: int | None = None) -> None:
        self.base_model = base_model
        self.vocab_size = vocab_size

    async def describe(self, client: httpx.AsyncClient) -> EngineFacts:
        """Return what the engine tells of itself, once it is ready."""
        await call(client, "GET", "/health")
        models, max_context = await replies.read_models(client)
        return EngineFacts(self.kind, await self._read_version(client), models, max_context)

    async def _read_version(self, client: httpx.AsyncClient) -> str:
        answer = await call(client, "GET", "/version")
        with replies.reading(client):
            return str(answer["version"])

    async def sample(self, client: httpx.AsyncClient, model: str, request: TokenRequest) -> TokenReply:
        """Return the continuation of a prompt."""
        self._refuse(request)
        body = {
            "model": model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop_strings),
            "stop_token_ids": list(request.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            **self._filters(request),
        }
        if request.seed is not None:
            body["seed"] = (request.seed + _SEEDS // 2) % _SEEDS - _SEEDS // 2
        answer = await call(client, "POST", "/v1/completions", body, refusal=RequestRefusedError)
        with replies.reading(client):
            replies.check_model(client, model, answer["model"])
            (choice,) = answer["choices"]
            replies.check_prompt(client, request.prompt, choice["prompt_token_ids"])
            return replies.make_reply(
                client,
                request,
                choice["token_ids"],
                choice["logprobs"]["token_logprobs"],
                choice["finish_reason"],
                vocab_size=self.vocab_size,
                version=self._version_of(answer),
                num_cached=((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            )

    def _refuse(self, request: TokenRequest) -> None:
        replies.refuse_unsupported(request, self.kind)

    def _filters(self, request: TokenRequest) -> dict[str, Any]:
        """Return every key of sampling that the model's own defaults would set otherwise."""
        return {
            "n": 1,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "min_tokens": 0,
            "ignore_eos": False,
        }

    def _version_of(self, answer: dict[str, Any]) -> int:
        return replies.UNKNOWN_VERSION

    async def score(self, client: httpx.AsyncClient, model: str, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first, at temperature 1.

        They are computed anew: what the engine has cached of the tokens is not used.
        """
        body = {
            "model": model,
            "prompt": list(tokens),
            "max_tokens": 0,
            "echo": True,
            "temperature": 1.0,
            "logprobs": 0,
            "return_token_ids": True,
            **self._filters(TokenRequest(tuple(tokens), 0)),
        }
        answer = await call(client, "POST", "/v1/completions", body)
        with replies.reading(client):
            replies.check_model(client, model, answer["model"])
            (choice,) = answer["choices"]
            replies.check_prompt(client, tokens, choice["prompt_token_ids"])
            logps = choice["logprobs"]["token_logprobs"]
            if len(logps) != len(tokens):
                raise ValueError(f"{len(logps)} log-probabilities of {len(tokens)} tokens")
            return [replies.read_logp(logp) for logp in logps[1:]]

    async def load_adapter(self, client: httpx.AsyncClient, name: str, directory: Path) -> None:
        """Let the engine sample with an adapter in PEFT's format, under a new name."""
        await call(client, "POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(directory)})

    async def unload_adapter(self, client: httpx.AsyncClient, name: str) -> None:
        """Let the engine forget an adapter."""
        await call(client, "POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        try:
            await call(client, "POST", "/pause?mode=wait")
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
            await call(client, "POST", "/collective_rpc", body)
            await call(client, "POST", "/reset_prefix_cache")
        finally:
            await call(client, "POST", "/resume")
