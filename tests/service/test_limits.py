"""Large, slow, many: each is bounded, and the server goes on."""

import concurrent.futures
import contextlib
import gzip
import io
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agent_tunix.service import Settings, TryLimits
from agent_tunix.store import open_store
from tests.service.support import BREVITY, Server, connected_ports, new_name, running, upload
from tests.service.test_authentication import error_of

LIST = "/v1/reward_functions"
GIGABYTE = 1 << 30
PATIENT_S = 30.0


@contextlib.contextmanager
def limited(tmp_path: Path, settings: Settings) -> Iterator[Server]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store, running(store, settings) as server:
        yield server


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=PATIENT_S) as connection:
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """What the server says until it closes."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            said += data
    return said


def head(server: Server, method: str = "POST", path: str = LIST, *lines: str) -> bytes:
    """A request up to its body."""
    given = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {server.secret}", *lines]
    return "\r\n".join([*given, "", ""]).encode()


def is_alive(server: Server) -> bool:
    with server.client() as client:
        return client.get(LIST).status_code == 200


# --- size ------------------------------------------------------------------------------------------------------------


def test_a_gigabyte_that_says_so_is_refused_before_it_is_sent(server: Server) -> None:
    with connected(server) as connection:
        connection.sendall(head(server, "POST", LIST, f"Content-Length: {GIGABYTE}"))
        said = read_all(connection)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b'"body_too_large"' in said
    assert is_alive(server)


def test_a_gigabyte_in_pieces_is_refused_long_before_its_end(server: Server) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        while sent < GIGABYTE:
            yield b"x" * 65536
            sent += 65536

    with server.client() as client:
        response = client.post(LIST, content=pieces())
    assert error_of(response) == (413, "invalid_request_error", "body_too_large")
    assert sent < GIGABYTE / 10
    assert is_alive(server)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_body_that_nobody_asked_for_is_not_read(server: Server, method: str) -> None:
    path = f"{LIST}/rf_{'a' * 24}"
    with connected(server) as connection:
        connection.sendall(head(server, method, path, f"Content-Length: {GIGABYTE}") + b"x" * 1000)
        said = read_all(connection)
    assert said.startswith(b"HTTP/1.1 404 ")
    assert b"connection: close" in said.lower()


def test_a_body_of_just_the_largest_size_is_taken_in(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(max_body_bytes=1000)) as server, server.client() as client:
        headers = {"Content-Type": "application/json"}
        path = f"{LIST}/rf_{'a' * 24}/try"
        assert client.post(path, content=b"x" * 1000, headers=headers).json()["error"]["code"] == "invalid_json"
        assert client.post(path, content=b"x" * 1001, headers=headers).json()["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "GZIP"])
def test_a_compressed_body_is_refused_unopened(client: httpx.Client, encoding: str) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    headers = {"Content-Encoding": encoding, "Content-Type": "multipart/form-data; boundary=x"}
    response = client.post(LIST, content=bomb, headers=headers)
    assert error_of(response) == (415, "invalid_request_error", "unsupported_encoding")


def test_an_archive_is_no_reward_function(client: httpx.Client) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("f.py", bytes(10_000_000))
    assert error_of(upload(client, new_name(), archive.getvalue()))[0] == 400


def test_headers_without_end_are_refused(server: Server) -> None:
    with connected(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000)
        said = read_all(connection)
    assert not said or said.startswith(b"HTTP/1.1 400 ")
    assert is_alive(server)


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno\r\n\r\n"])
def test_what_is_no_http_is_answered_in_the_same_shape(server: Server, sent: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(sent)
        said = read_all(connection)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b'"malformed_request"' in said


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_body_that_comes_too_slowly_is_not_waited_for(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(body_timeout_s=0.5)) as server:
        with connected(server) as connection:
            connection.sendall(head(server, "POST", LIST, "Content-Length: 1000") + b"x")
            said = read_all(connection)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'"body_timeout"' in said
        assert is_alive(server)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
def test_headers_that_do_not_come_are_not_waited_for(tmp_path: Path, sent: bytes) -> None:
    with limited(tmp_path, Settings(header_timeout_s=0.5)) as server, connected(server) as connection:
        connection.sendall(sent)
        assert b'"header_timeout"' in read_all(connection)


@pytest.mark.parametrize("waits", [False, True])
def test_headers_of_a_further_request_are_not_waited_for_either(tmp_path: Path, waits: bool) -> None:
    with limited(tmp_path, Settings(header_timeout_s=0.5)) as server, connected(server) as connection:
        said = b""
        connection.sendall(head(server, "GET", LIST) + (b"" if waits else b"GET / HT"))
        if waits:
            said = connection.recv(65536)
            connection.sendall(b"GET / HT")
        said += read_all(connection)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert b'"header_timeout"' in said


def test_headers_that_trickle_get_no_more_time(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(header_timeout_s=0.5)) as server, connected(server) as connection:
        connection.settimeout(0.1)
        said = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(100):
                connection.sendall(b"X: y\r\n")
                with contextlib.suppress(TimeoutError):
                    said += connection.recv(65536)
                if said:
                    break
    assert b'"header_timeout"' in said


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(keep_alive_s=0.5)) as server, connected(server) as connection:
        connection.sendall(head(server, "GET", LIST))
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone ends such connections")
def test_an_answer_that_nobody_reads_is_not_kept_for_ever(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(unread_timeout_s=1.0)) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.address)
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        port = connection.getsockname()[1]
        assert port in connected_ports(server)
        deadline = time.monotonic() + PATIENT_S
        while port in connected_ports(server):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert is_alive(server)


def test_an_answer_may_take_longer_than_headers_may(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(header_timeout_s=0.2)) as server, connected(server) as connection:
        body = b"x" * 10
        connection.sendall(head(server, "POST", LIST, "Content-Length: 10"))
        time.sleep(0.5)
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 415 ")


# --- number ----------------------------------------------------------------------------------------------------------


def test_a_key_that_makes_too_many_requests_is_told_when_to_come_again(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(requests_per_second=0.01, burst=3)) as server:
        with server.client() as client:
            answers = [client.get(LIST) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert error_of(answers[3]) == (429, "rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(answers[3].headers["retry-after"]) <= 100
        with server.client(server.new_key()) as other:
            assert other.get(LIST).status_code == 200


def test_more_connections_than_there_is_room_for_are_refused(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(max_connections=3)) as server, contextlib.ExitStack() as stack:
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


def test_many_at_once_are_all_answered(tmp_path: Path) -> None:
    with limited(tmp_path, Settings(requests_per_second=0)) as server, server.client() as client:
        upload(client)

        def ask(_: int) -> int:
            return client.get(LIST).status_code

        with concurrent.futures.ThreadPoolExecutor(50) as threads:
            assert set(threads.map(ask, range(500))) == {200}


def test_uploads_of_one_name_at_once_get_versions_of_their_own(server: Server) -> None:
    name = new_name()

    def add(number: int) -> int:
        with server.client() as client:
            version: int = upload(client, name, BREVITY + b"#" * number).json()["version"]
            return version

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(add, range(16))) == list(range(1, 17))


def test_a_name_that_several_keys_upload_at_once_becomes_one_of_theirs(server: Server) -> None:
    name = new_name()
    secrets = [server.new_key() for _ in range(8)]

    def add(secret: str) -> int:
        with server.client(secret) as client:
            return upload(client, name).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(add, secrets)) == [201] + [409] * 7


# --- tries -----------------------------------------------------------------------------------------------------------


def test_tries_beyond_those_that_may_run_at_once_are_told_to_come_again(tmp_path: Path) -> None:
    slow = (
        b"import time\ndef reward(completions, **kwargs):\n    time.sleep(2)\n    return [1.0 for _ in completions]\n"
    )
    with limited(tmp_path, Settings(tries=TryLimits(at_once=1))) as server, server.client() as client:
        path = f"{LIST}/{upload(client, source=slow).json()['id']}/try"

        def attempt(_: int) -> httpx.Response:
            return client.post(path, json={"rows": [{"completions": ["a"]}]})

        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            answers = list(threads.map(attempt, range(3)))
        assert sorted(answer.status_code for answer in answers) == [200, 503, 503]
        refused = next(answer for answer in answers if answer.status_code == 503)
        assert error_of(refused) == (503, "server_error", "busy")
        assert refused.headers["retry-after"]
