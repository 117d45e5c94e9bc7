"""Uploading, listing, getting and deleting over HTTP."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.store.opening import Store
from tests.service.support import BREVITY, Server, running, upload
from tests.store.conftest import store, url

__all__ = ["store", "url"]


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    """A running server with an empty store."""
    with running(store) as server:
        yield server


def test_an_upload_is_answered_with_what_is_known_of_it(client: httpx.Client) -> None:
    response = upload(client)
    made = response.json()
    assert response.status_code == 201
    assert made["id"].startswith("rf_")
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
    }


def test_what_was_uploaded_is_got_by_its_id(client: httpx.Client) -> None:
    made = upload(client).json()
    assert client.get(f"/v1/reward_functions/{made['id']}").json() == made


def test_the_list_is_newest_first_in_pages(client: httpx.Client) -> None:
    ids = [upload(client, f"f{number}").json()["id"] for number in range(5)]
    first = client.get("/v1/reward_functions", params={"limit": 3}).json()
    rest = client.get("/v1/reward_functions", params={"limit": 3, "after": first["data"][-1]["id"]}).json()
    assert [one["id"] for one in first["data"] + rest["data"]] == ids[::-1]
    assert (first["object"], first["has_more"], rest["has_more"]) == ("list", True, False)


def test_the_versions_of_a_name_are_listed_newest_first(client: httpx.Client) -> None:
    for name in ("one", "two", "one"):
        upload(client, name)
    found = client.get("/v1/reward_functions", params={"name": "one"}).json()["data"]
    assert [(one["name"], one["version"]) for one in found] == [("one", 2), ("one", 1)]


def test_an_upload_that_may_be_made_again_is_answered_with_the_version_that_there_is(client: httpx.Client) -> None:
    def upload_if_changed(source: bytes, if_changed: str) -> httpx.Response:
        fields = {"name": "brevity", "format": "trl", "if_changed": if_changed}
        return client.post("/v1/reward_functions", data=fields, files={"file": ("f.py", source)})

    first = upload_if_changed(BREVITY, "true")
    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert upload_if_changed(BREVITY, "true").json() == first.json()
    assert upload_if_changed(BREVITY, "false").json()["version"] == 2
    assert upload_if_changed(BREVITY + b"\n", "true").json()["version"] == 3
    assert upload_if_changed(BREVITY, "perhaps").json()["error"]["code"] == "invalid_if_changed"


def test_the_list_stays_whole_while_others_upload(client: httpx.Client) -> None:
    ids = [upload(client, f"f{number}").json()["id"] for number in range(6)]
    seen: list[str] = []
    after: str | None = None
    while True:
        page = client.get("/v1/reward_functions", params={"limit": 2} | ({"after": after} if after else {})).json()
        seen += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = seen[-1]
        upload(client, f"between{len(seen)}")
    assert seen == ids[::-1]


def test_the_source_is_the_very_bytes_and_not_shown_by_a_browser(client: httpx.Client) -> None:
    source = b"\xef\xbb\xbf# caf\xc3\xa9\r\n" + BREVITY
    made = upload(client, source=source).json()
    response = client.get(f"/v1/reward_functions/{made['id']}/source")
    assert response.content == source
    assert response.headers["content-type"] == "text/x-python; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="brevity.py"'
    assert response.headers["x-content-type-options"] == "nosniff"


def test_what_is_deleted_is_not_found(client: httpx.Client) -> None:
    id = upload(client).json()["id"]
    assert client.delete(f"/v1/reward_functions/{id}").json() == {
        "id": id,
        "object": "reward_function",
        "deleted": True,
    }
    for path in ("", "/source"):
        assert client.get(f"/v1/reward_functions/{id}{path}").status_code == 404
    assert client.delete(f"/v1/reward_functions/{id}").status_code == 404


def test_anothers_function_can_be_read_and_not_deleted(server: Server, client: httpx.Client) -> None:
    id = upload(client).json()["id"]
    with server.client(server.new_key()) as bob:
        assert bob.get(f"/v1/reward_functions/{id}").status_code == 200
        assert bob.delete(f"/v1/reward_functions/{id}").status_code == 404
        assert upload(bob).json()["error"]["code"] == "name_taken"
    assert client.get(f"/v1/reward_functions/{id}").status_code == 200
