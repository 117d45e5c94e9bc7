import http.server
import json
import threading
from collections.abc import Iterator

import pytest


class ScriptedServer(http.server.ThreadingHTTPServer):
    """A server of OpenAI's chat route that says 5 to everything, and remembers the keys of its calls."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.keys.append(self.headers["authorization"].removeprefix("Bearer "))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "5"}}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
