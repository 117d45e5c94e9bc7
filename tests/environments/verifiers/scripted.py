"""A policy that solves the environments of `gallery/of_verifiers`, behind OpenAI's chat route."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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


class ScriptedPolicy(http.server.ThreadingHTTPServer):
    """A server of the chat route, which remembers the requests of each key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: dict[str, list[dict[str, Any]]] = {}
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedPolicy

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["authorization"].removeprefix("Bearer ")
        self.server.requests.setdefault(key, []).append(body)
        message = solve(body["messages"], body.get("tools") or [])
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        data = json.dumps({**reply, "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted_policy() -> Iterator[ScriptedPolicy]:
    """Serve the policy."""
    with ScriptedPolicy() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
