"""Limits on size, time and number of requests. tests/service/abuse has more attacks; test_protocol.py the headers."""

import concurrent.futures
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.rewards import Score
from agent_tunix.service import ServiceSettings, TryLimits, tries
from agent_tunix.service.tries import Tried
from tests.service.abuse.cases import read_all
from tests.service.support import Server, serving, upload
from tests.service.test_authentication import error_of

LIST = "/v1/reward_functions"
GIGABYTE = 1 << 30
PATIENT_S = 120.0


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(server.address, timeout=PATIENT_S) as connection:
        yield connection


def head(server: Server, method: str, *lines: str) -> bytes:
    given = [f"{method} {LIST} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.secret}", *lines]
    return "\r\n".join([*given, "", ""]).encode()


def is_alive(server: Server) -> bool:
    with server.client() as client:
        return client.get(LIST).status_code == 200


def test_a_body_declared_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(head(server, "POST", f"Content-Length: {GIGABYTE}"))
        said = read_all(connection)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in said
    assert is_alive(server)


def test_a_body_may_have_exactly_the_largest_size(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceSettings(max_body_bytes=1000)) as server, server.client() as client:
        headers = {"Content-Type": "application/json"}
        path = f"{LIST}/rf_{'a' * 24}/try"
        assert client.post(path, content=b"x" * 1000, headers=headers).json()["error"]["code"] == "invalid_json"
        assert client.post(path, content=b"x" * 1001, headers=headers).json()["error"]["code"] == "body_too_large"


@pytest.mark.slow
def test_a_body_that_comes_too_slowly_ends_the_request(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceSettings(body_timeout_s=0.5)) as server:
        with connected(server) as connection:
            connection.sendall(head(server, "POST", "Content-Length: 1000") + b"x")
            said = read_all(connection)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'"body_timeout"' in said
        assert is_alive(server)


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceSettings(keep_alive_s=0.5)) as server, connected(server) as connection:
        connection.sendall(head(server, "GET"))
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


def test_a_key_that_makes_too_many_requests_must_wait(tmp_path: Path) -> None:
    with serving(tmp_path, ServiceSettings(requests_per_second=0.01, burst=3)) as server:
        with server.client() as client:
            answers = [client.get(LIST) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert error_of(answers[3]) == (429, "rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(answers[3].headers["retry-after"]) <= 100
        with server.client(server.new_key()) as other:
            assert other.get(LIST).status_code == 200


def test_more_connections_than_the_limit_are_refused(tmp_path: Path) -> None:
    settings = ServiceSettings(max_connections=3, header_timeout_s=600)
    with serving(tmp_path, settings) as server, contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connected(server))
        said = read_all(stack.enter_context(connected(server)))
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b'"too_many_connections"' in said
        assert b"retry-after" in said.lower()
        stack.close()
        deadline = time.monotonic() + PATIENT_S
        while not is_alive(server):
            assert time.monotonic() < deadline


def test_tries_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(*_: object) -> Tried:
        has_begun.set()
        assert may_end.wait(PATIENT_S)
        return Tried([[Score(1.0)]], 0.0)

    monkeypatch.setattr(tries, "try_reward", wait)
    with serving(tmp_path, ServiceSettings(tries=TryLimits(at_once=1))) as server, server.client() as client:
        path = f"{LIST}/{upload(client).json()['id']}/try"
        body = {"rows": [{"completions": ["a"]}]}
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            first = threads.submit(client.post, path, json=body)
            assert has_begun.wait(PATIENT_S)
            with server.client() as other:
                refused = other.post(path, json=body)
            may_end.set()
            assert first.result().json()["data"][0]["value"] == 1.0
        assert error_of(refused) == (503, "server_error", "busy")
        assert refused.headers["retry-after"]
