import httpx
import pytest

from tests.service.support import Server

CALLS = [
    ("GET", "/v1/reward_functions", "read"),
    ("GET", "/v1/reward_functions/{id}", "read"),
    ("GET", "/v1/reward_functions/{id}/source", "read"),
    ("POST", "/v1/reward_functions", "write"),
    ("DELETE", "/v1/reward_functions/{id}", "write"),
    ("POST", "/v1/reward_functions/{id}/try", "try"),
]
SCOPES = ("read", "write", "try")


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    error = response.json()["error"]
    assert set(error) == {"type", "code", "message", "param"}
    return response.status_code, error["type"], error["code"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "missing_key"),
        ("", "invalid_key"),
        (f"Bearer vk_{'a' * 40}", "invalid_key"),
        ("Basic {secret}", "invalid_key"),
        ("{secret}", "invalid_key"),
        ("Bearer {upper}", "invalid_key"),
        ("Bearer {secret}x", "invalid_key"),
    ],
)
def test_an_invalid_key_is_refused(server: Server, header: str | None, code: str) -> None:
    given = (
        {} if header is None else {"Authorization": header.format(secret=server.secret, upper=server.secret.upper())}
    )
    with server.client("") as client:
        response = client.get("/v1/reward_functions", headers=given)
    assert error_of(response) == (401, "authentication_error", code)
    assert response.headers["www-authenticate"] == "Bearer"


def test_only_the_openapi_document_needs_no_key(server: Server) -> None:
    with server.client("") as client:
        for method, path, _ in CALLS:
            assert error_of(client.request(method, path)) == (401, "authentication_error", "missing_key")
        for path in ("/v1", "/v1/", "/v1/nothing", "/v1/reward_functions/"):
            assert client.get(path).status_code == 401
        assert client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
def test_each_call_needs_its_scope(server: Server, method: str, path: str, scope: str) -> None:
    others = [other for other in SCOPES if other != scope]
    with server.client(server.new_key(*others)) as client:
        response = client.request(method, path.format(id="rf_" + "a" * 24))
    assert error_of(response) == (403, "permission_error", "insufficient_scope")
    assert repr(scope) in response.json()["error"]["message"]


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
def test_its_scope_is_all_that_a_call_needs(server: Server, method: str, path: str, scope: str) -> None:
    with server.client(server.new_key(scope)) as client:
        response = client.request(method, path.format(id="rf_" + "a" * 24))
    assert response.status_code in (200, 404, 415)


def test_a_revoked_key_is_refused_at_once(server: Server) -> None:
    key, secret = server.store.keys.create("bob")
    with server.client(secret) as bob:
        assert bob.get("/v1/reward_functions").status_code == 200
        server.store.keys.revoke(key.id)
        assert error_of(bob.get("/v1/reward_functions")) == (401, "authentication_error", "invalid_key")


def test_an_invalid_key_is_refused_before_the_body_is_read(server: Server) -> None:
    def endless() -> object:
        while True:
            yield b"x" * 65536

    with server.client("vk_" + "a" * 40) as client:
        response = client.post("/v1/reward_functions", content=endless())  # type: ignore[arg-type]
    assert response.status_code == 401
    assert response.headers["connection"] == "close"
