"""A real HTTP server on the loopback that answers as a chat-completions endpoint does, and misbehaves on demand."""

import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODE = re.compile(r'"id": "([0-9a-f]{12})"')
JUDGED = re.compile(r"<<<((?:FIRST |SECOND )?COMPLETION) \w+>>>\n(.*?)\n<<<END \1 \w+>>>", re.DOTALL)
CRITERION = re.compile(r"^- (\w+): .* Verdicts: (.+)\.$", re.MULTILINE)

DEADLINE_S = 60.0  # reached only where something hangs
LINGER_S = 0.02


@dataclass
class Answer:
    """An answer that the server sends instead of a verdict.

    Attributes:
        status: HTTP status.
        body: A JSON value, or bytes that are sent as they are.
        headers: Besides the length.
        delay_s: Wait before anything is sent.
        drip_s: Wait before each byte of the body.
        cut_after: Close the connection after so many bytes of the body; None: never; -1: before the status.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    cut_after: int | None = None


@dataclass
class Request:
    body: dict[str, Any]
    headers: dict[str, str]
    path: str

    @property
    def key(self) -> str:
        return self.headers["authorization"].removeprefix("Bearer ")

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.body["messages"])

    @property
    def judged(self) -> list[str]:
        return [text for _, text in JUDGED.findall(self.body["messages"][-1]["content"])]

    @property
    def code(self) -> str:
        return str(CODE.findall(self.body["messages"][-1]["content"])[-1])


def chat(content: str | None, **choice: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop", **choice}], "usage": usage}


def grade(request: Request) -> str:
    """A judge that finds its verdict in the completion: the first allowed one that stands there, or the last."""
    (completion,) = request.judged
    verdict: dict[str, Any] = {"id": request.code}
    for name, labels in CRITERION.findall(request.body["messages"][0]["content"]):
        allowed = labels.split(", ")
        found = [label for label in allowed if re.search(rf"\b{label}\b", completion)]
        verdict[name] = {
            "reason": f"because of {len(completion)} characters",
            "verdict": (found or allowed)[0 if found else -1],
        }
    return json.dumps(verdict)


def prefer_longer(request: Request) -> str:
    first, second = (len(text) for text in request.judged)
    better = "first" if first > second else "second" if second > first else "tie"
    return json.dumps({"id": request.code, "better": {"reason": "it is longer", "verdict": better}})


class EndpointServer:
    """The server. `answers` are given first, one a request; then `judge` gives its verdicts.

    Attributes:
        judge: From a request to the model's reply.
        answers: Sent instead of verdicts, in order.
        always: Asked before `answers`: from a request to the answer that replaces its verdict, or None.
        requests: All requests, in order.
        most_at_once: The most requests that were under way at the same time.
        crowd: No request is answered before so many are under way at once.
    """

    def __init__(self) -> None:
        self.judge: Callable[[Request], str] = grade
        self.answers: deque[Answer] = deque()
        self.always: Callable[[Request], Answer | None] = lambda request: None
        self.requests: list[Request] = []
        self.most_at_once = 0
        self.crowd = 0
        self._at_once = 0
        self._changed = threading.Condition()
        self._closing = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                endpoint._serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that gave up

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for_requests(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, DEADLINE_S)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        request = Request(body, headers, handler.path)
        with self._changed:
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self._changed.notify_all()
            answer = self.always(request) or (self.answers.popleft() if self.answers else None)
            if self.crowd:
                self._changed.wait_for(lambda: self.most_at_once >= self.crowd, DEADLINE_S)
        if self.crowd:
            self._closing.wait(LINGER_S)  # time for one too many to come
        try:
            answer = answer or Answer(body=chat(self.judge(request)))
        finally:
            with self._changed:
                self._at_once -= 1
        self._closing.wait(answer.delay_s)
        self._send(handler, answer)

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if answer.cut_after == -1:
            cut(handler)
            return
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if answer.drip_s:
            for byte in content:
                if self._closing.wait(answer.drip_s):
                    return
                handler.wfile.write(bytes([byte]))
        handler.wfile.write(content[: answer.cut_after])
        if answer.cut_after is not None:
            cut(handler)


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
