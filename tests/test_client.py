"""The client with a real server: the same values and errors as the store itself."""

import contextlib
import hashlib
import http.server
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_tunix.client import Client
from agent_tunix.errors import (
    AccessDeniedError,
    NameTakenError,
    NotStoredError,
    RewardError,
    StoreError,
    StoreRequestError,
    UploadError,
)
from agent_tunix.service import ServiceSettings
from agent_tunix.store.access import LocalAccess
from agent_tunix.store.fetching import fetch_uploaded
from agent_tunix.store.home import shown_url
from tests.raising import raises
from tests.service.support import BREVITY, Server, new_name, serving
from tests.tiers import slow_after

NO_ID = "rf_" + "a" * 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, server.secret) as client:
        yield client


def test_a_created_function_is_in_the_store(server: Server, client: Client) -> None:
    made = client.create(new_name(), BREVITY, "trl")
    stored = server.store.reward_functions.get(made.id)
    assert made.to_data() == stored.to_data()
    assert client.get(made.id) == client.latest(made.name) == made
    assert client.source(made.id) == BREVITY


def test_lists_are_pages(client: Client) -> None:
    name = new_name()
    ids = [client.create(name, BREVITY, "trl").id for _ in range(3)]
    first = client.versions(name, 2)
    rest = client.list(2, first.data[-1].id, name)
    assert [one.id for one in first.data + rest.data] == ids[::-1]
    assert (first.has_more, rest.has_more) == (True, False)


def test_a_function_is_tried(client: Client) -> None:
    made = client.create(new_name(), BREVITY, "trl")
    assert client.try_reward(made.id, [{"completions": [""]}])["data"][0]["value"] == 1.0


def test_a_deleted_function_is_not_stored(client: Client) -> None:
    made = client.create(new_name(), BREVITY, "trl")
    client.delete(made.id)
    for call in (client.get, client.source, client.delete):
        with pytest.raises(NotStoredError):
            call(made.id)


def test_an_unknown_id_is_not_stored(client: Client) -> None:
    for id in (NO_ID, "", "..", "../../openapi.json", "rf_", "a/b", "?limit=1", "\x00", "%2e%2e"):
        with raises(NotStoredError, "reward_function_not_found"):
            client.get(id)


def test_errors_are_those_of_the_store(server: Server, client: Client) -> None:
    name = client.create(new_name(), BREVITY, "trl").name
    with Client(server.url, server.new_key()) as other:
        for access in (other, LocalAccess(server.store, server.new_key())):
            calls: list[tuple[Callable[[], object], type[StoreRequestError], str, str]] = [
                (lambda: access.create(name, BREVITY, "trl"), NameTakenError, "name_taken", "name"),  # noqa: B023
                (lambda: access.create("a b", BREVITY, "trl"), UploadError, "invalid_name", "name"),  # noqa: B023
                (lambda: access.create(new_name(), b"x = 1", "trl"), UploadError, "no_reward_function", "file"),  # noqa: B023
                (lambda: access.list(after=NO_ID), StoreRequestError, "invalid_cursor", "after"),  # noqa: B023
                (lambda: access.list(limit=101), StoreRequestError, "invalid_limit", "limit"),  # noqa: B023
                (lambda: access.latest(new_name()), NotStoredError, "reward_function_not_found", "name"),  # noqa: B023
            ]
            for call, error, code, param in calls:
                with raises(error, code) as caught:
                    call()
                assert caught.value.param == param


def test_an_invalid_key_or_a_missing_scope_is_denied(server: Server) -> None:
    for secret in ("vk_", "vk_" + "a" * 40, "x y"):
        with Client(server.url, secret) as client, raises(AccessDeniedError, "invalid_key"):
            client.list()
    with Client(server.url, server.new_key("read")) as client, raises(AccessDeniedError, "insufficient_scope"):
        client.create(new_name(), BREVITY, "trl")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1", "nonsense", "http://[::", "http://a b"])
def test_an_unreachable_server_is_reported(url: str) -> None:
    with pytest.raises(StoreError) as caught, Client(url, "vk_" + "a" * 40) as client:
        client.list()
    assert caught.value.code == "unreachable_server"


@pytest.mark.parametrize(
    "lie",
    slow_after(
        2,
        [
            {"id": "../../../custom_rewards"},
            {"id": "rf_" + "b" * 24},
        ],
    ),
)
@pytest.mark.parametrize("spec", ["tidy", NO_ID])
def test_a_server_that_lies_about_a_function_is_refused(
    lie: dict[str, object], spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = b"def reward(completions, **kwargs):\n    return [1.0]\n"
    honest = {"id": NO_ID, "name": "tidy", "format": "trl", "created_at": "2026-01-01T00:00:00Z", "version": 1}
    honest |= {"sha256": hashlib.sha256(source).hexdigest(), "size": len(source), "owner": "key_a"}

    class Liar(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer: object = honest if "?" in self.path else honest | lie
            answer = {"data": [answer], "has_more": False} if "?" in self.path else answer
            body = source if self.path.endswith("/source") else json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Liar) as liar:
        threading.Thread(target=liar.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("AGENT_TUNIX_URL", f"http://127.0.0.1:{liar.server_port}")
        monkeypatch.setenv("AGENT_TUNIX_KEY", "vk_" + "a" * 40)
        with pytest.raises((StoreError, RewardError)):
            fetch_uploaded(spec)
        liar.shutdown()


@pytest.mark.slow
def test_the_client_tries_again_after_a_rate_limit(tmp_path: Path) -> None:
    settings = ServiceSettings(requests_per_second=1, burst=1)
    with serving(tmp_path, settings) as server, Client(server.url, server.secret) as client:
        assert [client.list().data for _ in range(3)] == [[], [], []]


@contextlib.contextmanager
def losing_the_first_answer(server: Server) -> Iterator[str]:
    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def carry(listener: socket.socket) -> None:
        for number in itertools.count():
            try:
                near = listener.accept()[0]
            except OSError:
                return
            with contextlib.suppress(OSError), near, socket.create_connection(server.address) as far:
                threading.Thread(target=pump, args=(near, far), daemon=True).start()
                answer = far.recv(65536)  # the whole request has come
                if number:
                    near.sendall(answer)
                    pump(far, near)
                near.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=carry, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_an_upload_with_a_lost_answer_is_repeated_if_changed(server: Server) -> None:
    name = new_name()
    with losing_the_first_answer(server) as url, Client(url, server.secret) as client:
        made = client.create(name, BREVITY, "trl", if_changed=True)
    assert server.store.reward_functions.versions(name).data == [server.store.reward_functions.get(made.id)]


def test_a_password_in_the_address_is_not_shown() -> None:
    assert shown_url("http://user:secret@127.0.0.1:8400") == "http://127.0.0.1:8400"
    assert shown_url("postgresql://host/store?password=secret") == "postgresql://host/store"
    with Client("http://user:secret@127.0.0.1:9", "vk_x") as client, raises(StoreError, "unreachable_server") as caught:
        client.list()
    assert "secret" not in str(caught.value)
    for url in ("postgresql://host/store?password=my@secret", "postgresql://user:my?secret@host/store"):
        assert shown_url(url) == "postgresql://…"
