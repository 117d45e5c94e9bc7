"""vLLM's routes: `/v1/completions` with token ids, adapters by name, and weights that are read again.

Adapters need a server with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`; whole weights one with `VLLM_SERVER_DEV_MODE=1`.
The log-probabilities are those of the sampling temperature only with `--logprobs-mode processed_logprobs`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines.http import HttpWire, call, reading
from agent_tunix.engines.replies import UNKNOWN_VERSION, check_prompt, make_reply, read_logp, refuse_unsupported
from agent_tunix.errors import EngineError
from agent_tunix.sampling.requests import TokenReply, TokenRequest

_RESUME_S = 10.0  # in which an engine must go on after it failed to read weights
# Seeds on the wire have 64 bits and a sign.
_SEEDS = 2**64
# Every key of sampling is sent: a model's generation_config.json may set those that are left out.
NEUTRAL = {
    "n": 1,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "ignore_eos": False,
}


class VllmWire(HttpWire):
    """The routes of vLLM; see `Wire`."""

    kind: ClassVar[str] = "vllm"
    _has_filters = False

    async def sample(self, client: httpx.AsyncClient, model: str, request: TokenRequest) -> TokenReply:
        """Return the continuation of a prompt."""
        refuse_unsupported(request, self.kind, has_filters=self._has_filters)
        body = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop_strings),
            "stop_token_ids": list(request.stop_ids),
        }
        if self._has_filters:
            body |= {"top_k": request.top_k or 0, "top_p": request.top_p, "min_p": request.min_p}
        if request.seed is not None:
            body["seed"] = (request.seed + _SEEDS // 2) % _SEEDS - _SEEDS // 2
        answer, choice = await self._complete(client, model, request.prompt, body)
        version = str(answer.get("system_fingerprint")).removeprefix("version-")  # as agent_tunix tells it
        with reading(client):
            return make_reply(
                request,
                choice["token_ids"],
                choice["logprobs"]["token_logprobs"],
                choice["finish_reason"],
                self.vocab_size,
                version=int(version) if version.isdecimal() else UNKNOWN_VERSION,
                num_cached=((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            )

    async def score(self, client: httpx.AsyncClient, model: str, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first, at temperature 1.

        The engine computes all of them: it uses nothing that it has cached of the tokens.
        """
        body = {"max_tokens": 0, "echo": True, "temperature": 1.0}
        _, choice = await self._complete(client, model, tokens, body)
        with reading(client):
            logps = choice["logprobs"]["token_logprobs"]
            if len(logps) != len(tokens):
                raise ValueError(f"there are {len(logps)} log-probabilities of {len(tokens)} tokens")
            return [read_logp(logp) for logp in logps[1:]]

    async def _complete(
        self, client: httpx.AsyncClient, model: str, prompt: Sequence[int], body: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the answer to a request and its only choice, which are of the model and the prompt."""
        fields = {"model": model, "prompt": list(prompt), "logprobs": 0, "return_token_ids": True, "top_k": 0}
        answer = await call(client, "/v1/completions", fields | NEUTRAL | {"min_tokens": 0} | body)
        with reading(client):
            if answer["model"] != model:
                raise EngineError(
                    f"{client.base_url} must reply with the model {model}, but did with {answer['model']!r:.80}; see "
                    "whether the engine falls back to its base where an adapter is missing",
                    code="engine_other_model",
                )
            (choice,) = answer["choices"]
            check_prompt(prompt, choice["prompt_token_ids"])
            return answer, choice

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        try:
            await call(client, "/pause?mode=wait", {})
            await call(client, "/collective_rpc", body)
            await call(client, "/reset_prefix_cache", {})
        except BaseException:
            with contextlib.suppress(EngineError, httpx.HTTPError, TimeoutError):
                async with asyncio.timeout(_RESUME_S):
                    await call(client, "/resume", {})
            raise
        await call(client, "/resume", {})
