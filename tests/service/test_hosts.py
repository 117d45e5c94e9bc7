import httpx
import pytest

from tests.service.support import Server


def asked_by(server: Server, host: str, path: str = "/openapi.json") -> httpx.Response:
    return httpx.get(f"{server.url}{path}", headers={"Host": host}, timeout=60)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "localhost:8400", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8400"]
)
def test_its_own_names_are_answered(host: str, server: Server) -> None:
    assert asked_by(server, host).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:8400", "10.0.0.1", "", "localhost@evil", "[::2]", "*"],
)
@pytest.mark.parametrize("path", ["/openapi.json", "/v1/runs", "/login"])
def test_another_name_is_a_typed_error(host: str, path: str, server: Server) -> None:
    answered = asked_by(server, host, path)
    assert answered.status_code == 400
    if path != "/login":
        assert answered.json()["error"]["code"] == "invalid_host"
