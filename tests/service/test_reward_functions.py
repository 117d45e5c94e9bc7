"""Reward functions over HTTP; tests/store has what the store itself promises, also on PostgreSQL."""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.service.support import BREVITY, Server, new_name, serving, upload
from tests.service.test_authentication import error_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as server:
        yield server


def test_an_upload_returns_the_new_function(client: httpx.Client) -> None:
    response = upload(client)
    made = response.json()
    assert response.status_code == 201
    assert made["id"].startswith("rf_")
    assert datetime.fromisoformat(made["created_at"]).utcoffset() == timedelta(0)
    assert made["created_at"].endswith("Z")
    assert made | {"id": "", "created_at": 0, "owner": ""} == {
        "id": "",
        "object": "reward_function",
        "name": "brevity",
        "format": "trl",
        "created_at": 0,
        "version": 1,
        "sha256": hashlib.sha256(BREVITY).hexdigest(),
        "size": len(BREVITY),
        "owner": "",
        "function": "reward",
    }
    assert client.get(f"/v1/reward_functions/{made['id']}").json() == made


def test_if_changed_returns_the_version_with_the_same_bytes(client: httpx.Client) -> None:
    def upload_if_changed(source: bytes, if_changed: str) -> httpx.Response:
        fields = {"name": "brevity", "format": "trl", "if_changed": if_changed}
        return client.post("/v1/reward_functions", data=fields, files={"file": ("f.py", source)})

    first = upload_if_changed(BREVITY, "true")
    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert upload_if_changed(BREVITY, "true").json() == first.json()
    assert upload_if_changed(BREVITY, "false").json()["version"] == 2
    assert upload_if_changed(BREVITY + b"\n", "true").json()["version"] == 3
    assert upload_if_changed(BREVITY, "perhaps").json()["error"]["code"] == "invalid_if_changed"


def test_the_source_is_returned_byte_for_byte_as_a_download(client: httpx.Client) -> None:
    source = b"\xef\xbb\xbf# caf\xc3\xa9\r\n" + BREVITY
    made = upload(client, source=source).json()
    response = client.get(f"/v1/reward_functions/{made['id']}/source")
    assert response.content == source
    assert response.headers["content-type"] == "text/x-python; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="brevity.py"'
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_deleted_function_is_not_found(client: httpx.Client) -> None:
    id = upload(client).json()["id"]
    assert client.delete(f"/v1/reward_functions/{id}").json() == {
        "id": id,
        "object": "reward_function",
        "deleted": True,
    }
    for path in ("", "/source"):
        assert client.get(f"/v1/reward_functions/{id}{path}").status_code == 404
    assert client.delete(f"/v1/reward_functions/{id}").status_code == 404


def test_the_function_of_another_owner_can_be_read_but_not_changed(server: Server, client: httpx.Client) -> None:
    id = upload(client).json()["id"]
    with server.client(server.new_key()) as bob:
        assert bob.get(f"/v1/reward_functions/{id}").status_code == 200
        assert bob.delete(f"/v1/reward_functions/{id}").status_code == 404
        assert error_of(upload(bob)) == (409, "invalid_request_error", "name_taken")
        assert upload(bob, new_name()).status_code == 201
    assert client.get(f"/v1/reward_functions/{id}").status_code == 200
