"""Keys that are not valid: counted by where they come from, without shutting out who has a valid one."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agent_tunix.service import Settings
from agent_tunix.service.buckets import TokenBuckets
from agent_tunix.service.failed_logins import FailedLogins, network_of
from agent_tunix.service.problems import Problem
from agent_tunix.store import open_store
from tests.service.support import Server, running
from tests.service.test_authentication import error_of
from tests.service.test_limits import head

LIST = "/v1/reward_functions"
ALLOWED = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that takes three keys that are not valid, and then none for a long time."""
    settings = Settings(failed_keys_per_second=0.001, failed_keys_burst=ALLOWED)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store, running(store, settings) as server:
        yield server


def fail(server: Server, authorization: str, address: str = "127.0.0.1") -> httpx.Response:
    """Ask with a key that is not valid, from an address of this machine."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address)) as client:
        return client.get(f"{server.url}{LIST}", headers={"Authorization": authorization})


@pytest.mark.parametrize("authorization", [f"Bearer vk_{'a' * 40}", "Bearer nonsense", "Basic YTpi", ""])
def test_an_address_that_goes_on_with_keys_that_are_not_valid_is_told_to_wait(
    server: Server, authorization: str
) -> None:
    answers = [fail(server, authorization) for _ in range(ALLOWED + 1)]
    assert [answer.status_code for answer in answers] == [401] * ALLOWED + [429]
    assert error_of(answers[-1]) == (429, "rate_limit_error", "too_many_failed_keys")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 1000


def test_a_valid_key_passes_from_the_same_address_all_the_while(server: Server) -> None:
    with server.client() as client:
        for _ in range(3 * ALLOWED):
            fail(server, "Bearer vk_dead")
            assert client.get(LIST).status_code == 200


def test_another_address_has_failures_of_its_own(server: Server) -> None:
    for _ in range(ALLOWED + 1):
        fail(server, "Bearer vk_dead")
    assert fail(server, "Bearer vk_dead", "127.0.0.2").status_code == 401


def test_a_request_without_a_key_is_no_failure(server: Server) -> None:
    with server.client("") as client:
        assert {client.get(LIST).status_code for _ in range(2 * ALLOWED)} == {401}
    assert fail(server, "Bearer vk_dead").status_code == 401


def test_a_key_that_lacks_a_scope_is_no_failure(server: Server) -> None:
    with server.client(server.new_key("try")) as client:
        assert {client.get(LIST).status_code for _ in range(2 * ALLOWED)} == {403}


def test_a_key_that_is_revoked_while_its_upload_comes_in_uploads_nothing(server: Server) -> None:
    key, secret = server.store.keys.create("bob")
    address = urlsplit(server.url)
    form = (
        b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nf\r\n'
        b'--x\r\nContent-Disposition: form-data; name="format"\r\n\r\ntrl\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.py"\r\n\r\n'
        b"def reward(completions, **kwargs): return [0.0]\r\n--x--\r\n"
    )
    lines = ["Content-Type: multipart/form-data; boundary=x", f"Content-Length: {len(form)}", "Expect: 100-continue"]
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(head(Server(server.url, server.store, secret), "POST", LIST, *lines))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")  # the key has been found to be valid
        connection.sendall(form[:-1])
        server.store.keys.revoke(key.id)
        connection.sendall(form[-1:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert server.store.reward_functions.list().data == []


# --- counting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        (None, ""),
    ],
)
def test_who_sends_a_request_is_an_address_or_the_network_that_one_party_has(host: str | None, network: str) -> None:
    assert network_of({"type": "http", "client": None if host is None else (host, 1)}) == network


def test_failures_are_forgiven_with_time() -> None:
    now = 0.0
    failed = FailedLogins(rate=0.5, size=2, clock=lambda: now)
    scope = {"type": "http", "client": ("192.0.2.7", 1)}
    failed.count(scope)
    failed.count(scope)
    with pytest.raises(Problem, match=r"wait 2\.0 s"):
        failed.count(scope)
    now = 2.0
    failed.count(scope)
    with pytest.raises(Problem):
        failed.count(scope)


def test_what_is_counted_takes_bounded_room_and_those_heard_of_last_stay() -> None:
    buckets = TokenBuckets(rate=0.001, size=1, clock=lambda: 0.0, most=10)
    for number in range(1000):
        assert buckets.take(f"10.0.0.{number}") == 0.0
        if number >= 1:
            assert buckets.take("10.0.0.0") > 0
    assert len(buckets._buckets) == 10
