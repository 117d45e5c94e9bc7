"""A stand-in of SGLang 0.5.23: routes, bodies, limits and errors as its published source has them.

Log-probabilities of a reply are at the sampling temperature, those of the input at temperature 1. `null` stands for a
log-probability that is not finite. Seeds count only with `--enable-deterministic-inference`.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent_tunix.sampling.requests import TokenRequest
from tests.engines.stand_ins.engine import Fault, StandIn
from tests.engines.stand_ins.policies import Policy

_SAMPLING_KEYS = {
    *("max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "stop_regex", "no_stop_trim", "ignore_eos", "n"),
    *("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("skip_special_tokens", "spaces_between_special_tokens", "logit_bias", "sampling_seed"),
}


class GenerateBody(BaseModel):
    """The body of `/generate`; FastAPI ignores keys that it does not know."""

    model_config = ConfigDict(extra="allow")
    input_ids: list[int]
    sampling_params: dict[str, Any] | None = None
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    lora_path: str | None = None


class AdapterBody(BaseModel):
    """The body of the routes of adapters."""

    lora_name: str
    lora_path: str = ""


class WeightsBody(BaseModel):
    """The body of `/update_weights_from_disk`."""

    model_config = ConfigDict(extra="allow")
    model_path: str
    flush_cache: bool = True
    weight_version: str | None = None


class SglangStandIn(StandIn):
    """SGLang. `is_deterministic`: as started with `--enable-deterministic-inference`."""

    def __init__(self, policy: Policy, *faults: Fault, is_deterministic: bool = True, **options: Any) -> None:
        super().__init__(policy, *faults, **options)
        self.is_deterministic = is_deterministic
        self.weight_version = "default"

    def app(self) -> FastAPI:
        """Return the routes."""
        app = FastAPI()
        app.add_exception_handler(RequestValidationError, _invalid)
        for path in ("/health", "/health_generate"):
            app.get(path)(lambda: Response())
        for path in ("/get_model_info", "/model_info"):
            app.get(path)(self._model)
        for path in ("/get_server_info", "/server_info"):
            app.get(path)(self._server)
        app.get("/v1/models")(self._models)
        app.post("/generate")(self._generate)
        app.post("/load_lora_adapter")(self._load)
        app.post("/unload_lora_adapter")(self._unload)
        app.post("/update_weights_from_disk")(self._update)
        app.api_route("/flush_cache", methods=["GET", "POST"])(self._flush)
        return app

    def _model(self) -> dict[str, Any]:
        return {"model_path": self.base, "is_generation": True, "weight_version": self.weight_version}

    def _server(self) -> dict[str, Any]:
        context = self.policy.max_context
        return self._model() | {"version": "0.5.23", "context_length": context, "max_total_num_tokens": 8 * context}

    def _models(self) -> dict[str, Any]:
        card = {"id": self.base, "object": "model", "owned_by": "sglang", "root": self.base}
        adapters = [card | {"id": name, "parent": self.base} for name in list(self.names)[1:]]
        return {"object": "list", "data": [card | {"max_model_len": self.policy.max_context}, *adapters]}

    async def _generate(self, body: GenerateBody) -> Response:
        ids, sampling = body.input_ids, self.sampling_of(body.sampling_params or {})
        if unknown := set(sampling) - _SAMPLING_KEYS:
            return _error(f"Unexpected keyword argument '{min(unknown)}'")
        name = body.lora_path or self.base
        if not self.has(name):
            return _error(
                f"The following requested LoRA adapters are not loaded: {{'{name}'}}\n"
                f"Loaded adapters: {list(self.names)[1:]}."
            )
        limit, context = sampling.get("max_new_tokens", 128), self.policy.max_context
        if not ids or max(ids) >= self.policy.vocab_size:
            return _error("The input_ids are out of the vocabulary")
        if len(ids) + limit > context:
            return _error(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {len(ids) + limit} tokens."
            )
        request = TokenRequest(
            tuple(ids),
            max(limit, 1),
            temperature=sampling.get("temperature", 1.0),
            top_k=sampling.get("top_k") if sampling.get("top_k", -1) > 0 else None,
            seed=sampling.get("sampling_seed") if self.is_deterministic else None,
            stop_ids=tuple(sampling.get("stop_token_ids") or ()),
            num_alternatives=body.top_logprobs_num,
            with_prompt_logps=body.return_logprob and body.logprob_start_len >= 0,
        )
        reply, logps = await self.reply(name, request)
        if limit == 0:
            reply, logps = dataclasses.replace(reply, tokens=(), finish_reason="length"), []
        reasons: dict[str | None, dict[str, Any]] = {
            "stop": {"type": "stop", "matched": reply.tokens[-1] if reply.tokens else None},
            "length": {"type": "length", "length": limit},
            "abort": {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None},
        }
        meta: dict[str, Any] = {
            "id": "0",
            "finish_reason": reasons[reply.finish_reason],
            "prompt_tokens": len(ids),
            "completion_tokens": len(reply.tokens),
            "cached_tokens": 0,
            "weight_version": self.weight_version,
        }
        if body.return_logprob:
            meta["output_token_logprobs"] = _entries(zip(reply.tokens, logps, strict=True))
            start = max(body.logprob_start_len, 0)
            meta["input_token_logprobs"] = _entries(
                list(zip(ids, reply.prompt_logps, strict=False))[start:] if request.with_prompt_logps else ()
            )
            if body.top_logprobs_num:
                meta["output_top_logprobs"] = [_entries(one) for one in reply.alternatives]
        return JSONResponse({"text": "", "output_ids": list(reply.tokens), "meta_info": meta})

    def _load(self, body: AdapterBody) -> Response:
        try:
            if Fault.NO_SUCCESS in self.faults:
                raise ValueError("the adapter was not loaded")
            if body.lora_name in self.names:
                raise ValueError(f"LoRA adapter {body.lora_name} is already loaded.")
            self.load_adapter(body.lora_name, Path(body.lora_path))
        except ValueError as error:
            return self._adapters(str(error))
        return self._adapters()

    def _unload(self, body: AdapterBody) -> Response:
        if body.lora_name not in self.names:
            return self._adapters(f"LoRA with name {body.lora_name} does not exist. Loaded LoRAs: {list(self.names)}")
        self.unload_adapter(body.lora_name)
        return self._adapters()

    def _adapters(self, error: str = "") -> Response:
        loaded = dict.fromkeys(list(self.names)[1:], "")
        answer = {"success": not error, "error_message": error, "loaded_adapters": loaded}
        return JSONResponse(answer, 400 if error else 200)

    async def _update(self, body: WeightsBody) -> Response:
        message, success = "Succeeded to update model weights.", Fault.NO_SUCCESS not in self.faults
        await self.pause()
        try:
            if success:
                self.load_weights(Path(body.model_path))
                self.weight_version = body.weight_version or self.weight_version
            if body.flush_cache:
                self.reset_cache()
        except ValueError as error:
            message, success = str(error), False
        finally:
            self.resume()
        answer = {"success": success, "message": message, "num_paused_requests": 0}
        return JSONResponse(answer, 200 if success else 400)

    def _flush(self) -> Response:
        self.reset_cache()
        return Response("Cache flushed.\n", 400 if Fault.NO_SUCCESS in self.faults else 200)


def _entries(pairs: Any) -> list[list[Any]]:
    """Return triples of log-probability, token and text; JSON has no infinity."""
    finite = ((token, None if logp is None or not math.isfinite(logp) else logp) for token, logp in pairs)
    return [[logp, token, None] for token, logp in finite]


def _error(message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, 400)


async def _invalid(request: Request, error: Exception) -> Response:
    answer = {"object": "error", "message": str(error), "type": "Bad Request", "param": None, "code": 400}
    return JSONResponse(answer, 400)
