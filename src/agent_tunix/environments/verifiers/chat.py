"""A harness of `verifiers.v1` in this process: a conversation that ends with a reply without tool calls.

It is what the harness `null` of verifiers does in a process of its own for each rollout.
"""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import openai
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]

_FAILED = 1


class ChatHarness(NullHarness):
    """A conversation with the tools of the taskset."""

    SUPPORTS_TOOL_INTERCEPTION = False

    async def setup(self, runtime: Any) -> None:
        """Prepare nothing."""

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Mapping[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        """Hold the conversation of one segment of a rollout."""
        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        messages += [message_to_wire(message) for message in ([] if isinstance(prompt, str) else prompt or [])]
        # verifiers answers a refused turn with an error, and knows why. The clients of the policy retry by themselves.
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
        async with client, contextlib.AsyncExitStack() as stack:
            tools = await _Tools.connect(mcp_urls, self.config.tool_timeout, stack)
            try:
                await _converse(client, ctx.model, messages, tools)
            except openai.APIError as error:
                return ProgramResult(exit_code=_FAILED, stdout="", stderr=str(error))
        return ProgramResult(exit_code=0, stdout="", stderr="")


class _Tools:
    """The tools of the servers of a task."""

    def __init__(self, schemas: list[dict[str, Any]], dispatch: Any, servers: Any) -> None:
        self.schemas = schemas
        self._dispatch = dispatch
        self._servers = servers

    @classmethod
    async def connect(cls, urls: Mapping[str, str], timeout_s: float, stack: contextlib.AsyncExitStack) -> "_Tools":
        if not urls:
            return cls([], {}, {})
        from verifiers.v1.harnesses.utils.mcp import connect_mcp

        servers = {name: {"url": url, "timeout": timeout_s} for name, url in urls.items()}
        return cls(*await connect_mcp({"mcpServers": servers}, stack))

    async def call(self, name: str, text: str) -> Any:
        """Return the result of a call, or the error that the model is told."""
        try:
            arguments = json.loads(text or "{}")
        except json.JSONDecodeError as error:
            return f"error: invalid JSON in the arguments ({error}); send the call again with valid JSON"
        if not isinstance(arguments, dict):
            return f"error: the arguments must be a JSON object, not {type(arguments).__name__}"
        if name not in self._dispatch:
            return f"error: unknown tool {name!r}"
        from verifiers.v1.harnesses.utils.mcp import call_mcp

        return await call_mcp(self._servers, self._dispatch, name, arguments)


async def _converse(client: openai.AsyncOpenAI, model: str, messages: list[Any], tools: _Tools) -> None:
    while True:
        offered = {"tools": tools.schemas} if tools.schemas else {}
        reply = await client.chat.completions.create(model=model, messages=messages, **offered)  # type: ignore[arg-type]
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            assert call.type == "function", call.type
            content = await tools.call(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
