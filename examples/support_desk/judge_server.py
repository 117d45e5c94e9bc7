"""A judge on the loopback, which speaks the wire format of docs/judges.md: judge_server.py PORT."""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def verdict(user: str) -> dict[str, Any]:
    """Return the verdict on the completion of a question."""
    code = re.findall(r'"id": "(\w+)"', user)[-1]
    found = re.search(rf"<<<COMPLETION {code}>>>\n(.*)\n<<<END COMPLETION {code}>>>", user, re.DOTALL)
    completion = found[1].rstrip() if found else ""
    answer = "yes" if completion.endswith((".", ">")) else "no"
    return {"id": code, "finished": {"reason": f"it ends with {completion[-1:]!r}", "verdict": answer}}


class Judge(BaseHTTPRequestHandler):
    """Answers each question at once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a question."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = json.dumps(verdict(request["messages"][-1]["content"]))
        message = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": 300, "completion_tokens": 30}
        answer = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Judge) as server:
        print("ready", flush=True)
        server.serve_forever()
