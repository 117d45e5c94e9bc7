"""Small engines on the loopback that speak vLLM's and SGLang's routes, as far as requests for tokens need them."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

VOCAB = 50
BASE = "base"
Fault = Callable[[dict[str, Any]], Response | dict[str, Any] | None]


def sampled(prompt: list[int], seed: int, count: int) -> tuple[list[int], list[float]]:
    """The tokens that both engines write after a prompt, and their log-probabilities."""
    tokens = [(sum(prompt) + (seed or 0) + 7 * place) % VOCAB for place in range(count)]
    return tokens, [-0.1 - token / 7 for token in tokens]


class ToyEngine:
    """One replica.

    Attributes:
        url: Its URL.
        bodies: Bodies of the requests, by path.
        fault: Function of an answer that changes it, or gives another one; None leaves it.
        is_healthy: False to answer checks with 503.
        is_held: True to answer no request for tokens.
        delay_s: Seconds that each request for tokens takes.
        num_checks: Checks that it passed.
        models: Names of the models.
        open: Requests for tokens that are being answered.
        cancelled: Set when a client leaves a request that is held.
    """

    def __init__(self) -> None:
        self.url = ""
        self.open = 0
        self.reset()
        self.app = FastAPI()
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("/health", "GET", self._health),
            ("/version", "GET", lambda: {"version": "0.33.0"}),
            ("/server_info", "GET", lambda: {"version": "0.5.23"}),
            ("/v1/models", "GET", self._list),
            ("/v1/completions", "POST", self._complete),
            ("/generate", "POST", self._generate),
            ("/{path:path}", "POST", self._other),
        ]
        for path, method, endpoint in routes:
            self.app.add_api_route(path, endpoint, methods=[method], response_model=None)

    def reset(self) -> None:
        """Forget the requests and the faults."""
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.fault: Fault | None = None
        self.is_healthy = True
        self.is_held = False
        self.delay_s = 0.0
        self.num_checks = 0
        self.models = [BASE]
        self.cancelled = threading.Event()

    def _health(self) -> Response:
        self.num_checks += self.is_healthy
        return Response(status_code=200 if self.is_healthy else 503)

    def _list(self) -> dict[str, Any]:
        return {
            "data": [
                {"id": name, "parent": BASE if name != BASE else None, "max_model_len": 64} for name in self.models
            ]
        }

    async def _answer(self, request: Request, path: str, answer: Callable[[dict[str, Any]], Any]) -> Any:
        body = await request.json() if await request.body() else {}
        self.bodies.append((path, body))
        if path in ("/v1/completions", "/generate"):
            self.open += 1
            try:
                await asyncio.sleep(self.delay_s)
                while self.is_held:
                    await asyncio.sleep(0.005)
                    if await request.is_disconnected():
                        self.cancelled.set()
                        return Response(status_code=499)
            finally:
                self.open -= 1
        data = answer(body)
        return data if self.fault is None or isinstance(data, Response) else (self.fault(data) or data)

    async def _complete(self, request: Request) -> Any:
        return await self._answer(request, "/v1/completions", self._completion)

    def _completion(self, body: dict[str, Any]) -> Any:
        if body["model"] not in self.models:
            words = {"message": f"The model `{body['model']}` does not exist.", "type": "NotFoundError", "code": 404}
            return JSONResponse({"error": words}, 404)
        tokens, logps = sampled(body["prompt"], body.get("seed", 0), body["max_tokens"] or 1)
        all_logps = [None, *sampled(body["prompt"], 0, len(body["prompt"]))[1][1:]] if body.get("echo") else logps
        choice = {"token_ids": tokens, "prompt_token_ids": body["prompt"], "logprobs": {"token_logprobs": all_logps}}
        return {"model": body["model"], "choices": [choice | {"finish_reason": "length"}], "usage": {}}

    async def _generate(self, request: Request) -> Any:
        return await self._answer(request, "/generate", self._generated)

    def _generated(self, body: dict[str, Any]) -> Any:
        name, sampling, prompt = body.get("lora_path", BASE), body["sampling_params"], body["input_ids"]
        if name not in self.models:
            words = f"The following requested LoRA adapters are not loaded: {name}"
            return JSONResponse({"error": {"message": words}}, 400)
        tokens, logps = sampled(prompt, sampling.get("sampling_seed", 0), sampling["max_new_tokens"])
        meta = {
            "finish_reason": {"type": "length", "length": len(tokens)},
            "prompt_tokens": len(prompt),
            "weight_version": "default",
            "output_token_logprobs": [[logp, token, None] for logp, token in zip(logps, tokens, strict=True)],
        }
        if body.get("logprob_start_len") == 0:
            read = [None, *sampled(prompt, 0, len(prompt))[1][1:]]
            meta["input_token_logprobs"] = [[logp, token, None] for logp, token in zip(read, prompt, strict=True)]
        return {"text": "", "output_ids": tokens, "meta_info": meta}

    async def _other(self, request: Request, path: str) -> Any:
        def act(body: dict[str, Any]) -> Any:
            if path.endswith("unload_lora_adapter"):
                self.models.remove(body["lora_name"])
            elif path.endswith("load_lora_adapter"):
                self.models.append(body["lora_name"])
            return {"status": "ok"}

        return await self._answer(request, f"/{path}?{request.url.query}".rstrip("?"), act)

    @contextlib.contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        """Serve in a thread, and yield the URL. At the end, all connections break."""
        with socket.create_server(("127.0.0.1", port)) as listener:
            config = uvicorn.Config(self.app, log_config=None, timeout_graceful_shutdown=0)
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()
            while not server.started:
                time.sleep(0.002)
            try:
                self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
                yield self.url
            finally:
                self.is_held = False
                server.should_exit = server.force_exit = True
                thread.join()


def main(port: int, delay_s: float) -> None:
    """Serve in a process of its own, print the URL, and end when it is killed."""
    engine = ToyEngine()
    engine.delay_s = delay_s
    with engine.serving(port) as url:
        print(url, flush=True)
        threading.Event().wait()
