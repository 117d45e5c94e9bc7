import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from tests.service.support import BREVITY, upload

from agent_tunix.cli import main
from agent_tunix.store import open_store

SERVE = "from agent_tunix.cli import main; main()"
PATIENT_S = 600


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AGENT_TUNIX_DATABASE_URL", raising=False)
    return tmp_path / "home"


@contextlib.contextmanager
def served(home: Path, *options: str, program: str = SERVE) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, "serve", "--port", "0", *options],
        env=os.environ | {"AGENT_TUNIX_HOME": str(home)},
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found
            yield process, found[0]
        finally:
            if process.poll() is None:
                process.kill()


def refused(*options: str) -> str:
    result = CliRunner().invoke(main, ["serve", *options])
    assert result.exit_code == 2, result.output
    return result.stderr


def make_key(home: Path) -> str:
    with open_store(f"sqlite:///{home}/store.db") as store:
        return store.keys.create("alice")[1]


def test_a_rejected_upload_is_explained_and_the_server_goes_on_until_a_signal(home: Path) -> None:
    secret = make_key(home)
    with served(home) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=PATIENT_S) as client:
            rejected = upload(client, source=b"def reward(")
            assert (rejected.status_code, rejected.json()["error"]["code"]) == (400, "syntax_error")
            assert upload(client).status_code == 201
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENT_S) == 0
    with open_store(f"sqlite:///{home}/store.db") as store:
        assert [store.reward_functions.source(one.id) for one in store.reward_functions.list().data] == [BREVITY]


@pytest.mark.slow
def test_a_request_that_has_begun_is_answered_before_it_ends(home: Path) -> None:
    secret = make_key(home)
    with served(home) as (process, url):
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port), timeout=PATIENT_S) as connection:
            body = b"x" * 10
            connection.sendall(
                f"POST /v1/reward_functions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
            )
            httpx.get(f"{url}/openapi.json")  # by now the other request has come
            process.send_signal(signal.SIGINT)
            connection.sendall(body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 415 ")
        assert process.wait(PATIENT_S) == 0


def test_an_address_that_cannot_be_used_is_refused(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = refused("--port", port)
    assert f"port {port} of 127.0.0.1 is in use" in said
    assert "--port" in said
    assert "requires a key" in refused("--host", "192.0.2.1")
    make_key(home)
    assert "cannot listen on 192.0.2.1:8400" in refused("--host", "192.0.2.1")


@pytest.mark.slow
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_once_there_is_a_key(home: Path, host: str) -> None:
    assert "agent-tunix keys create NAME" in refused("--host", host, "--port", "0")
    secret = make_key(home)
    with contextlib.suppress(OSError), socket.create_server((host, 0), family=_family(host)):
        with served(home, "--host", host) as (_, url):
            there = url.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
            headers = {"Authorization": f"Bearer {secret}"}
            assert httpx.get(f"{there}/v1/reward_functions", headers=headers).status_code == 200
        with open_store(f"sqlite:///{home}/store.db") as store:
            store.keys.revoke("alice")
        assert "requires a key" in refused("--host", host, "--port", "0")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
