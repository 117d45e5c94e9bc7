"""Proxies of the environment: they are named, and this machine needs none."""

import httpx
import pytest

from agent_tunix.client import Client
from agent_tunix.errors import StoreError
from agent_tunix.proxies import describe_proxy, is_loopback, problem_with_proxies
from tests.raising import raises

HUB = "https://hub.example/v1"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.9.9.9", True),
        ("http://localhost:8000", True),
        ("http://judge.localhost", True),
        ("http://[::1]:8000", True),
        ("http://10.0.0.1:8000", False),
        ("http://localhost.example", False),
        ("https://api.openai.com/v1", False),
        ("no url", False),
        ("http://[::1", False),
    ],
)
def test_addresses_of_this_machine_are_recognised(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize("proxy", ["socks4://me:secret@proxy:1080", "ftp://proxy"])
def test_a_proxy_that_the_http_client_cannot_use_is_a_problem(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_with_proxies(HUB) == ""
    monkeypatch.setenv("ALL_PROXY", proxy)
    problem = problem_with_proxies(HUB)
    assert "unset or correct it" in problem
    assert "secret" not in problem
    assert problem_with_proxies("http://127.0.0.1:8000/v1") == ""


def test_without_proxies_for_any_host_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://proxy:1080")
    monkeypatch.setenv("NO_PROXY", "*")
    assert problem_with_proxies(HUB) == ""
    httpx.Client().close()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://me:secret@proxy:3128"}, " through HTTPS_PROXY=http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, ""),
        ({"ALL_PROXY": "http://proxy:3128"}, " through ALL_PROXY=http://proxy:3128"),
        ({"ALL_PROXY": "http://proxy:3128", "NO_PROXY": "hub.example"}, ""),
    ],
)
def test_the_proxy_of_a_request_is_named(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert describe_proxy(HUB) == expected


def test_the_client_of_a_store_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://proxy:1080")
    with raises(StoreError, "unreachable_server"):
        Client("http://store.example", "vk_x")
    Client("http://127.0.0.1:1", "vk_x").close()
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with raises(StoreError, "unreachable_server", "ALL_PROXY=http://127.0.0.1:1"):
        Client("http://store.example", "vk_x").list()
