"""A stand-in of vLLM 0.33 in development mode: routes, bodies, limits and errors as its published source has them.

Log-probabilities are of the processed distribution, as with `--logprobs-mode processed_logprobs`; those of prompts are
at temperature 1. A log-probability of minus infinity becomes -9999.
"""

import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent_tunix.sampling.requests import TokenReply, TokenRequest
from tests.engines.stand_ins.engine import Fault, StandIn


class CompletionBody(BaseModel):
    """The body of `/v1/completions`; vLLM ignores keys that it does not know."""

    model_config = ConfigDict(extra="allow")
    model: str | None = None
    prompt: list[int] | list[list[int]] | str
    echo: bool = False
    logprobs: int | None = Field(None, ge=-1)
    prompt_logprobs: int | None = Field(None, ge=-1)
    max_tokens: int | None = 16
    n: int = 1
    seed: int | None = None
    temperature: float | None = Field(None, ge=0)
    top_k: int | None = None
    stop_token_ids: list[int] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None


class AdapterBody(BaseModel):
    """The body of the routes of adapters."""

    lora_name: str
    lora_path: str = ""
    load_inplace: bool = False


class VllmStandIn(StandIn):
    """vLLM."""

    def app(self) -> FastAPI:
        """Return the routes."""
        app = FastAPI()
        app.add_exception_handler(RequestValidationError, _invalid)
        app.get("/health")(lambda: Response())
        app.get("/version")(lambda: {"version": "0.33.0"})
        app.get("/v1/models")(self._models)
        app.post("/v1/completions")(self._complete)
        app.post("/v1/load_lora_adapter")(self._load)
        app.post("/v1/unload_lora_adapter")(self._unload)
        app.post("/pause")(self._pause)
        app.post("/resume")(self._resume)
        app.get("/is_paused")(lambda: {"is_paused": self.is_paused})
        app.post("/collective_rpc")(self._call)
        app.post("/reset_prefix_cache")(self._reset)
        return app

    def _models(self) -> dict[str, Any]:
        cards = []
        for name in self.names:
            is_base = name == self.base
            length, parent = (self.policy.max_context, None) if is_base else (None, self.base)
            cards.append({"id": name, "object": "model", "owned_by": "vllm", "parent": parent, "max_model_len": length})
        return {"object": "list", "data": cards}

    async def _complete(self, body: CompletionBody) -> Response:
        name = body.model or self.base
        if not self.has(name):
            return _error(404, f"The model `{name}` does not exist.", "NotFoundError", "model")
        prompt = body.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], list) or body.n != 1:
            return _error(400, "The stand-in takes one prompt of token ids.")
        ids = [token for token in prompt if isinstance(token, int)]
        if max(ids) >= self.policy.vocab_size:
            return _error(400, f"Token id {max(ids)} is out of vocabulary")
        limit = 16 if body.max_tokens is None else body.max_tokens
        if max(len(ids), limit) > self.policy.max_context:
            return _error(
                400,
                f"This model's maximum context length is {self.policy.max_context} tokens. However, you requested "
                f"{limit} output tokens and your prompt contains {len(ids)} input tokens.",
            )
        limit = min(limit, self.policy.max_context - len(ids))  # as vLLM 0.32 does
        scores_prompt = body.prompt_logprobs is not None or (body.echo and body.logprobs is not None)
        sampling = self.sampling_of({"temperature": body.temperature, "top_k": body.top_k})
        request = TokenRequest(
            tuple(ids),
            max(limit, 1),
            temperature=sampling.get("temperature", 1.0),
            top_k=sampling.get("top_k") if sampling.get("top_k", 0) > 0 else None,
            seed=body.seed,
            stop_ids=tuple(body.stop_token_ids or ()),
            num_alternatives=max(body.logprobs or 0, 0),
            with_prompt_logps=scores_prompt,
        )
        reply, logps = await self.reply(name, request)
        return JSONResponse(self._answer_of(name, body, request, reply, logps, without_reply=body.echo and not limit))

    def _answer_of(
        self,
        name: str,
        body: CompletionBody,
        request: TokenRequest,
        reply: TokenReply,
        logps: list[float | None],
        *,
        without_reply: bool,
    ) -> dict[str, Any]:
        tokens, told = list(reply.tokens), list(zip(reply.tokens, logps, strict=True))
        if body.echo:
            told = [*zip(request.prompt, reply.prompt_logps, strict=False), *([] if without_reply else told)]
        choice: dict[str, Any] = {
            "index": 0,
            "text": "",
            "logprobs": None if body.logprobs is None else _logprobs(told, reply, body.return_tokens_as_token_ids),
            "finish_reason": reply.finish_reason,
            "stop_reason": tokens[-1] if tokens and tokens[-1] in request.stop_ids else None,
            "token_ids": tokens if body.return_token_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(request.prompt) if body.return_token_ids else None,
        }
        if body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = [
                None if logp is None else {str(token): {"logprob": logp, "rank": 1, "decoded_token": ""}}
                for token, logp in zip(request.prompt, reply.prompt_logps, strict=True)
            ]
        usage = {"prompt_tokens": len(request.prompt), "completion_tokens": len(tokens)}
        return {
            "id": "cmpl-0",
            "object": "text_completion",
            "created": int(time.time()),
            "model": "another" if Fault.OTHER_MODEL in self.faults else name,
            "choices": [choice],
            "usage": usage | {"total_tokens": sum(usage.values())},
        }

    def _load(self, body: AdapterBody) -> Response:
        if not body.load_inplace and body.lora_name in self.names:
            message = f"The lora adapter '{body.lora_name}' has already been loaded."
            return _error(400, message, "InvalidUserInput")
        if Fault.NO_SUCCESS in self.faults:
            return _error(500, "Failed to add the adapter.", "InternalServerError")
        try:
            self.load_adapter(body.lora_name, Path(body.lora_path))
        except ValueError as error:
            return _error(404 if "No adapter found" in str(error) else 500, str(error), "NotFoundError")
        return Response(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    def _unload(self, body: AdapterBody) -> Response:
        if body.lora_name not in self.names:
            return _error(404, f"The lora adapter '{body.lora_name}' cannot be found.", "NotFoundError")
        self.unload_adapter(body.lora_name)
        return Response(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    async def _pause(self, mode: str = Query("abort", pattern="^(abort|wait|keep)$")) -> dict[str, str]:
        await self.pause()
        self.reset_cache()
        return {"status": "paused"}

    async def _resume(self) -> dict[str, str]:
        self.resume()
        return {"status": "resumed"}

    async def _call(self, request: Request) -> Response:
        body = await request.json()
        if body.get("method") != "reload_weights":
            return JSONResponse({"detail": "Missing 'method' in request body"}, 400)
        try:
            self.load_weights(Path(body.get("kwargs", {})["weights_path"]))
        except (KeyError, ValueError) as error:
            return _error(500, str(error), "InternalServerError")
        return JSONResponse({"results": [None]})

    def _reset(self) -> Response:
        self.reset_cache()
        return JSONResponse({"success": False}) if Fault.NO_SUCCESS in self.faults else Response()


def _logprobs(told: list[tuple[int, float | None]], reply: TokenReply, as_ids: bool | None) -> dict[str, Any]:
    """Return the log-probabilities of tokens; of the reply's last ones also the likeliest."""

    def name_of(token: int) -> str:
        return f"token_id:{token}" if as_ids else f"<{token}>"

    tops: list[dict[str, float] | None] = []
    first = len(told) - len(reply.tokens)
    for place, (token, logp) in enumerate(told):
        others = reply.alternatives[place - first] if reply.alternatives and place >= first else ()
        values = {name_of(other): value for other, value in others}
        tops.append(None if logp is None else {name_of(token): _floored(logp)} | values)
    return {
        "tokens": [name_of(token) for token, _ in told],
        "token_logprobs": [None if logp is None else _floored(logp) for _, logp in told],
        "top_logprobs": tops,
        "text_offset": [0] * len(told),
    }


def _floored(logp: float) -> float:
    return max(logp, -9999.0)


def _error(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


async def _invalid(request: Request, error: Exception) -> Response:
    return _error(400, str(error), "Bad Request")
