from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent_tunix.service import ServiceSettings
from agent_tunix.web.limits import FailedLogins, TokenBuckets, network_of
from agent_tunix.web.problems import Problem
from tests.service.support import Server, serving
from tests.service.test_authentication import error_of

LIST = "/v1/reward_functions"
ALLOWED = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that takes three keys that are not valid, and then none for a long time."""
    settings = ServiceSettings(failed_keys_per_second=0.001, failed_keys_burst=ALLOWED)
    with serving(tmp_path, settings) as server:
        yield server


def fail(server: Server, authorization: str, address: str = "127.0.0.1") -> httpx.Response:
    """Ask with a key that is not valid, from an address of this machine."""
    with httpx.Client(transport=httpx.HTTPTransport(local_address=address)) as client:
        return client.get(f"{server.url}{LIST}", headers={"Authorization": authorization})


@pytest.mark.parametrize("authorization", [f"Bearer vk_{'a' * 40}", "Bearer nonsense", "Basic YTpi", ""])
def test_an_address_that_sends_too_many_invalid_keys_must_wait(server: Server, authorization: str) -> None:
    answers = [fail(server, authorization) for _ in range(ALLOWED + 1)]
    assert [answer.status_code for answer in answers] == [401] * ALLOWED + [429]
    assert error_of(answers[-1]) == (429, "rate_limit_error", "too_many_failed_keys")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 1000


def test_a_valid_key_and_other_addresses_are_not_limited(server: Server) -> None:
    with server.client() as client:
        for _ in range(ALLOWED + 1):
            fail(server, "Bearer vk_dead")
            assert client.get(LIST).status_code == 200
    assert fail(server, "Bearer vk_dead", "127.0.0.2").status_code == 401


def test_a_missing_key_or_scope_does_not_count_as_a_failure(server: Server) -> None:
    with server.client("") as client:
        assert {client.get(LIST).status_code for _ in range(2 * ALLOWED)} == {401}
    with server.client(server.new_key("try")) as client:
        assert {client.get(LIST).status_code for _ in range(2 * ALLOWED)} == {403}
    assert fail(server, "Bearer vk_dead").status_code == 401


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
def test_a_client_is_known_by_its_address_or_ipv6_network(host: str | None, network: str) -> None:
    assert network_of({"type": "http", "client": None if host is None else (host, 1)}) == network


def test_failures_are_forgiven_with_time() -> None:
    now = 0.0
    failed = FailedLogins(rate=0.5, size=2, clock=lambda: now)
    scope = {"type": "http", "client": ("192.0.2.7", 1)}
    failed.count(scope)
    failed.count(scope)
    with pytest.raises(Problem) as caught:
        failed.count(scope)
    assert (caught.value.code, caught.value.headers["Retry-After"]) == ("too_many_failed_keys", "2")
    now = 2.0
    failed.count(scope)
    with pytest.raises(Problem):
        failed.count(scope)


def test_the_oldest_addresses_are_forgotten() -> None:
    buckets = TokenBuckets(rate=0.001, size=1, clock=lambda: 0.0, most=10)
    for number in range(1000):
        assert buckets.take(f"10.0.0.{number}") == 0.0
        if number >= 1:
            assert buckets.take("10.0.0.0") > 0
    assert buckets.take("10.0.0.1") == 0.0  # it was forgotten
