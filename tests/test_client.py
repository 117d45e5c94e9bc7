"""The client against a real server: the same values and errors as the store itself."""

import contextlib
import http.server
import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agent_tunix.client import Client
from agent_tunix.errors import (
    AccessDeniedError,
    NameTakenError,
    NotStoredError,
    StoreError,
    StoreRequestError,
    UploadError,
)
from agent_tunix.service import Settings
from agent_tunix.store import open_store
from agent_tunix.store.access import LocalAccess, open_access
from tests.service.support import BREVITY, Server, new_name, running

NO_ID = "rf_" + "a" * 24


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    file = tmp_path_factory.mktemp("store") / "store.db"
    with open_store(f"sqlite:///{file}") as store, running(store) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Alice's."""
    with Client(server.url, server.secret) as client:
        yield client


def test_what_is_created_is_what_the_store_has(server: Server, client: Client) -> None:
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


def test_what_is_deleted_is_not_stored(client: Client) -> None:
    made = client.create(new_name(), BREVITY, "trl")
    client.delete(made.id)
    for call in (client.get, client.source, client.delete):
        with pytest.raises(NotStoredError):
            call(made.id)


@pytest.mark.parametrize("id", [NO_ID, "", "..", "../../openapi.json", "rf_", "a/b", "?limit=1", "\x00", "%2e%2e"])
def test_what_is_no_id_is_not_stored(client: Client, id: str) -> None:
    with pytest.raises(NotStoredError):
        client.get(id)


def test_errors_are_the_stores(server: Server, client: Client) -> None:
    name = new_name()
    client.create(name, BREVITY, "trl")
    with Client(server.url, server.new_key()) as other:
        local = LocalAccess(server.store, server.new_key())
        for access in (other, local):
            with pytest.raises(NameTakenError) as taken:
                access.create(name, BREVITY, "trl")
            assert taken.value.code == "name_taken"
            with pytest.raises(UploadError) as refused:
                access.create("a b", BREVITY, "trl")
            assert (refused.value.code, refused.value.param) == ("invalid_name", "name")
            with pytest.raises(UploadError) as wrong:
                access.create(new_name(), b"x = 1", "trl")
            assert (wrong.value.code, wrong.value.param) == ("no_reward_function", "file")
            with pytest.raises(StoreRequestError) as cursor:
                access.list(after=NO_ID)
            assert (cursor.value.code, cursor.value.param) == ("invalid_cursor", "after")
            with pytest.raises(StoreRequestError) as limit:
                access.list(limit=101)
            assert (limit.value.code, limit.value.param) == ("invalid_limit", "limit")
            with pytest.raises(NotStoredError):
                access.latest(new_name())


@pytest.mark.parametrize("secret", ["vk_", "vk_" + "a" * 40, "x y"])
def test_a_key_that_is_not_valid_is_denied(server: Server, secret: str) -> None:
    with Client(server.url, secret) as client, pytest.raises(AccessDeniedError):
        client.list()


def test_a_scope_that_is_lacking_is_told_of(server: Server) -> None:
    with Client(server.url, server.new_key("read")) as client, pytest.raises(AccessDeniedError, match="write"):
        client.create(new_name(), BREVITY, "trl")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1", "nonsense", "http://[::", "http://a b"])
def test_a_server_that_cannot_be_reached_is_told_of(url: str) -> None:
    with pytest.raises(StoreError), Client(url, "vk_" + "a" * 40) as client:
        client.list()


@pytest.mark.parametrize("secret", ["", "vk_é", "vk_\n"])
def test_a_key_that_no_header_can_have_is_told_of(server: Server, secret: str) -> None:
    with pytest.raises(StoreError), Client(server.url, secret) as client:
        client.list()


def test_what_is_no_store_is_told_of() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as other:
        thread = threading.Thread(target=other.serve_forever, daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{other.server_port}", "vk_x") as client, pytest.raises(StoreError, match="404"):
            client.list()
        other.shutdown()


def test_a_client_that_is_told_to_come_again_does(tmp_path: Path) -> None:
    settings = Settings(requests_per_second=1, burst=1)
    with (
        open_store(f"sqlite:///{tmp_path / 'store.db'}") as store,
        running(store, settings) as server,
        Client(server.url, server.secret) as client,
    ):
        assert [client.list().data for _ in range(3)] == [[], [], []]


@contextlib.contextmanager
def losing_the_first_answer(server: Server) -> Iterator[str]:
    """The URL of a way to a server on which its first answer is lost."""
    address = urlsplit(server.url)

    def carry(listener: socket.socket) -> None:
        for number in itertools.count():
            try:
                near = listener.accept()[0]
            except OSError:
                return
            with near, socket.create_connection((address.hostname, address.port)) as far:
                near.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    while data := near.recv(65536):
                        far.sendall(data)
                answer = far.recv(65536)
                if number:
                    near.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=carry, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_an_upload_whose_answer_was_lost_is_made_again_where_that_does_no_harm(server: Server) -> None:
    name = new_name()
    with losing_the_first_answer(server) as url, Client(url, server.secret) as client:
        made = client.create(name, BREVITY, "trl", if_changed=True)
    assert server.store.reward_functions.versions(name).data == [server.store.reward_functions.get(made.id)]


def test_an_upload_whose_answer_was_lost_is_told_of_otherwise(server: Server) -> None:
    name = new_name()
    lost = pytest.raises(StoreError, match="cannot be reached")
    with losing_the_first_answer(server) as url, Client(url, server.secret) as client, lost:
        client.create(name, BREVITY, "trl")
    assert len(server.store.reward_functions.versions(name).data) == 1


def test_the_store_that_is_meant_may_be_a_server(server: Server) -> None:
    with open_access(server.url, server.secret) as access:
        made = access.create(new_name(), BREVITY, "trl")
        assert access.get(made.id) == made
