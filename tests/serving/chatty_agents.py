"""Agents whose rows say what they do with the policy."""

import os
import socket
import subprocess
import time
from typing import Any

import openai


def ask(client: Any, text: str, **settings: Any) -> str:
    messages = [{"role": "user", "content": text}]
    return str(client.chat.completions.create(model="policy", messages=messages, **settings).choices[0].message.content)


def solve(row: dict[str, Any], client: Any) -> float | str:
    """Do what the column `fault` says; without one, take two turns."""
    match row.get("fault"):
        case "calls another":
            try:
                ask(openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0), "hello")
            except openai.AuthenticationError as error:
                row["refused"] = error.status_code == 401
        case "never calls":
            return 1.0
        case "floods with calls":
            while True:
                ask(client, "again")
        case "exceeds the context":
            return ask(client, "word " * 5000)
        case "asks for what there is not":
            return ask(client, "hello", response_format={"type": "json_object"})
        case "handles the context":
            try:
                ask(client, "word " * 5000)
            except openai.BadRequestError as error:
                row["refused"] = error.code == "context_length_exceeded"
        case "opens connections":
            row["open"] = [socket.create_connection((client.base_url.host, client.base_url.port)) for _ in range(20)]
            for connection in row["open"]:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
        case "disconnects":
            connection = socket.create_connection((client.base_url.host, client.base_url.port))
            body = b'{"model": "policy", "messages": [{"role": "user", "content": "hello"}]}'
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: {client.base_url.host}\r\nContent-Type: application/json"
            )
            connection.sendall(
                f"{head}\r\nAuthorization: Bearer {client.api_key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            connection.close()
        case "leaves children":
            subprocess.Popen(["sleep", "987654"], start_new_session=True)
        case "raises":
            ask(client, row["question"])
            raise RuntimeError("the tool is broken")
        case "exits":
            os._exit(3)
        case "is killed":
            os.kill(os.getpid(), 9)
        case "hangs":
            time.sleep(1000)
    if not row.get("refused", True):
        return 0.0
    first = ask(client, row["question"])
    messages = [
        {"role": "user", "content": row["question"]},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "Are you sure?"},
    ]
    client.chat.completions.create(model="policy", messages=messages)
    return float(row["answer"] in first)
