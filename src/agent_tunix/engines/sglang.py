"""SGLang's routes: `/generate` with token ids, adapters by name, and weights with a version.

Adapters need a server with `--enable-lora`; seeds are followed only with `--enable-deterministic-inference`.
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

# Seeds are numbers of a signed type of 64 bits, and must not be negative.
_SEEDS = 2**63
_NEUTRAL = {
    "n": 1,
    "top_k": -1,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
    "ignore_eos": False,
}


class SglangWire:
    """The routes of SGLang; see `Wire`.

    Args:
        base_model: Name of the model that the engines serve; each other name is one of an adapter.
        vocab_size: Number of its tokens; a reply with another one is an error. None: they are not checked.
    """

    kind: ClassVar[str] = "sglang"

    def __init__(self, base_model: str, vocab_size: int | None = None) -> None:
        self.base_model = base_model
        self.vocab_size = vocab_size

    async def describe(self, client: httpx.AsyncClient) -> EngineFacts:
        """Return what the engine tells of itself, once it is ready."""
        await call(client, "GET", "/health")
        models, max_context = await replies.read_models(client)
        server = await call(client, "GET", "/server_info")
        with replies.reading(client):
            return EngineFacts(self.kind, str(server["version"]), models, max_context)

    async def sample(self, client: httpx.AsyncClient, model: str, request: TokenRequest) -> TokenReply:
        """Return the continuation of a prompt."""
        replies.refuse_unsupported(request, self.kind)
        sampling = _NEUTRAL | {
            "max_new_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop_strings),
            "stop_token_ids": list(request.stop_ids),
            "no_stop_trim": True,
        }
        if request.seed is not None:
            sampling["sampling_seed"] = request.seed % _SEEDS
        body = self._body(model, request.prompt, sampling)
        answer = await call(client, "POST", "/generate", body, refusal=RequestRefusedError)
        with replies.reading(client):
            meta = answer["meta_info"]
            logps = [entry[0] for entry in meta["output_token_logprobs"]]
            tokens = [entry[1] for entry in meta["output_token_logprobs"]]
            if answer.get("output_ids", tokens) != tokens or meta["prompt_tokens"] != len(request.prompt):
                raise ValueError("other token ids than those with log-probabilities, or another prompt")
            version = str(meta.get("weight_version"))
            return replies.make_reply(
                client,
                request,
                tokens,
                logps,
                meta["finish_reason"]["type"],
                vocab_size=self.vocab_size,
                version=int(version) if version.isdecimal() else replies.UNKNOWN_VERSION,
                num_cached=meta.get("cached_tokens") or 0,
            )

    def _body(self, model: str, prompt: Sequence[int], sampling: dict[str, Any]) -> dict[str, Any]:
        body = {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True, "stream": False}
        return body if model == self.base_model else body | {"lora_path": model}

    async def score(self, client: httpx.AsyncClient, model: str, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first, at temperature 1.

        They are computed anew: what the engine has cached of the tokens is not used.
        """
        body = self._body(model, tokens, _NEUTRAL | {"max_new_tokens": 0, "temperature": 1.0})
        answer = await call(client, "POST", "/generate", body | {"logprob_start_len": 0})
        with replies.reading(client):
            entries = answer["meta_info"]["input_token_logprobs"]
            replies.check_prompt(client, tokens, [entry[1] for entry in entries])
            return [replies.read_logp(entry[0]) for entry in entries[1:]]

    async def load_adapter(self, client: httpx.AsyncClient, name: str, directory: Path) -> None:
        """Let the engine sample with an adapter in PEFT's format, under a new name."""
        await call(client, "POST", "/load_lora_adapter", {"lora_name": name, "lora_path": str(directory)})

    async def unload_adapter(self, client: httpx.AsyncClient, name: str) -> None:
        """Let the engine forget an adapter."""
        await call(client, "POST", "/unload_lora_adapter", {"lora_name": name})

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        body = {"model_path": str(directory), "flush_cache": True, "weight_version": str(version)}
        await call(client, "POST", "/update_weights_from_disk", body)
