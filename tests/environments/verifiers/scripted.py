"""A policy that solves the environments of `gallery/of_verifiers`, behind OpenAI's chat route."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.rewards.judges.endpoint_server import Answer, EndpointServer, Request


def solve(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message that solves a conversation."""
    text = str(messages[-1]["content"])
    if messages[-1]["role"] == "tool" or text in ("higher", "lower"):
        content = text if messages[-1]["role"] == "tool" else "7" if text == "higher" else "3"
    elif tools:
        name = tools[0]["function"]["name"]
        arguments = {"expression": _expression(text)} if name == "calculator" else {"text": text}
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    elif "What is" in text:
        a, _, b = _expression(text).split()
        content = f"<answer>{int(a) + int(b)}</answer>"
    else:
        content = "5" if "number" in text else text[::-1]
    return {"role": "assistant", "content": content}


def _expression(question: str) -> str:
    return question.partition("is ")[2].rstrip("?")


@contextmanager
def scripted_policy() -> Iterator[EndpointServer]:
    """Serve the policy."""

    def answer(request: Request) -> Answer:
        message = solve(request.body["messages"], request.body.get("tools") or [])
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        return Answer(body={**reply, "usage": usage}, headers={"Content-Type": "application/json"})

    server = EndpointServer()
    server.always = answer
    yield server
    server.close()
