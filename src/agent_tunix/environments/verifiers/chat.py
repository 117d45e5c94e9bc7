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


class ChatHarness(NullHarness):  # type: ignore[misc]
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
        else:
            messages += map(message_to_wire, prompt or ())
        # verifiers answers a refused turn with an error, and knows why. It retries its own calls of the policy.
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, timeout=None)
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with client, contextlib.AsyncExitStack() as stack:
            try:
                await _converse(client, ctx.model, messages, servers, stack)
            except openai.APIError as error:
                return ProgramResult(exit_code=1, stdout="", stderr=str(error))
        return ProgramResult(exit_code=0, stdout="", stderr="")


async def _converse(
    client: openai.AsyncOpenAI, model: str, messages: list[Any], servers: Any, stack: contextlib.AsyncExitStack
) -> None:
    tools: list[Any] = []
    if servers:
        from verifiers.v1.harnesses.utils import mcp

        tools, *places = await mcp.connect_mcp({"mcpServers": servers}, stack)
    while True:
        reply = await client.chat.completions.create(model=model, messages=messages, tools=tools or openai.omit)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            assert call.type == "function", call.type
            name, arguments = call.function.name, _arguments(call.function.arguments)
            if not isinstance(arguments, dict):
                content = "error: the arguments must be a JSON object; send the call again with one"
            elif not tools or name not in places[0]:
                content = f"error: unknown tool {name!r}"
            else:
                content = await mcp.call_mcp(places[1], places[0], name, arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        if not message.tool_calls:
            return


def _arguments(text: str) -> Any:
    """Return the arguments of a call; None if they are not JSON."""
    with contextlib.suppress(ValueError):
        return json.loads(text or "{}")
    return None
