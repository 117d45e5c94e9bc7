"""SGLang's routes: `/generate` with token ids, adapters by name, and weights with a version.

Adapters need a server with `--enable-lora`; seeds are followed only with `--enable-deterministic-inference`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines.http import HttpWire, call, reading
from agent_tunix.engines.replies import UNKNOWN_VERSION, check_prompt, make_reply, read_logp, refuse_unsupported
from agent_tunix.engines.vllm import NEUTRAL
from agent_tunix.engines.wire import EngineFacts
from agent_tunix.sampling.requests import TokenReply, TokenRequest

# Seeds are not negative, and of a type with a sign.
_SEEDS = 2**63


class SglangWire(HttpWire):
    """The routes of SGLang; see `Wire`. Each name of a model but the base's is one of an adapter."""

    kind: ClassVar[str] = "sglang"
    _version_path = "/server_info"
    _adapters_path = ""
    base_model = ""  # once an engine has told it

    async def describe(self, client: httpx.AsyncClient) -> EngineFacts:
        """Return what the engine tells of itself, once it is ready."""
        facts = await super().describe(client)
        # It calls its base by the directory of the weights that it read last.
        self.base_model = self.base_model or facts.models[0]
        return EngineFacts(facts.kind, facts.version, (self.base_model, *facts.models[1:]), facts.max_context)

    async def sample(self, client: httpx.AsyncClient, model: str, request: TokenRequest) -> TokenReply:
        """Return the continuation of a prompt."""
        refuse_unsupported(request, self.kind)
        sampling = {
            "max_new_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop_strings),
            "stop_token_ids": list(request.stop_ids),
        }
        if request.seed is not None:
            sampling["sampling_seed"] = request.seed % _SEEDS
        answer = await self._generate(client, model, request.prompt, sampling, -1)
        with reading(client):
            meta = answer["meta_info"]
            tokens = [entry[1] for entry in meta["output_token_logprobs"]]
            if answer.get("output_ids", tokens) != tokens or meta["prompt_tokens"] != len(request.prompt):
                raise ValueError("the reply has other token ids than those with log-probabilities, or another prompt")
            version = str(meta.get("weight_version"))
            return make_reply(
                request,
                tokens,
                [entry[0] for entry in meta["output_token_logprobs"]],
                meta["finish_reason"]["type"],
                self.vocab_size,
                version=int(version) if version.isdecimal() else UNKNOWN_VERSION,
                num_cached=meta.get("cached_tokens") or 0,
            )

    async def score(self, client: httpx.AsyncClient, model: str, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token after the first, at temperature 1.

        The engine computes all of them: it uses nothing that it has cached of the tokens.
        """
        answer = await self._generate(client, model, tokens, {"max_new_tokens": 0, "temperature": 1.0}, 0)
        with reading(client):
            entries = answer["meta_info"]["input_token_logprobs"]
            check_prompt(tokens, [entry[1] for entry in entries])
            return [read_logp(entry[0]) for entry in entries[1:]]

    async def _generate(
        self, client: httpx.AsyncClient, model: str, prompt: Sequence[int], sampling: dict[str, Any], first_logp: int
    ) -> Any:
        body = {
            "input_ids": list(prompt),
            "sampling_params": {**NEUTRAL, "top_k": -1, "min_new_tokens": 0, **sampling},
            "return_logprob": True,
            "logprob_start_len": first_logp,
        }
        adapter = {} if model == self.base_model else {"lora_path": model}
        return await call(client, "/generate", body | adapter)

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        body = {"model_path": str(directory), "flush_cache": True, "weight_version": str(version)}
        await call(client, "/update_weights_from_disk", body)
