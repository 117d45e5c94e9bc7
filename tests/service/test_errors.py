"""Errors of the API: one shape, the documented status and code, and no internals. tests/service/abuse has more."""

import logging
from typing import Any

import httpx
import pytest

from agent_tunix.errors import StoreError
from agent_tunix.store.reward_functions import RewardFunctions
from agent_tunix.store.uploads import MAX_BYTES
from tests.service.support import BREVITY
from tests.service.test_authentication import error_of

NO_ID = "rf_" + "a" * 24
LIST = "/v1/reward_functions"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/nothing", (404, "path_not_found", None)),
        ("GET", "/nothing", (404, "path_not_found", None)),
        ("GET", f"{LIST}/", (404, "path_not_found", None)),
        ("GET", f"{LIST}/{NO_ID}", (404, "reward_function_not_found", "id")),
        ("GET", f"{LIST}/{NO_ID}/source", (404, "reward_function_not_found", "id")),
        ("DELETE", f"{LIST}/{NO_ID}", (404, "reward_function_not_found", "id")),
        ("GET", f"{LIST}/%F0%9F%92%A9", (404, "reward_function_not_found", "id")),
        ("PUT", LIST, (405, "method_not_allowed", None)),
        ("PATCH", f"{LIST}/{NO_ID}", (405, "method_not_allowed", None)),
        ("HEAD", LIST, (405, None, None)),
        ("GET", f"{LIST}?limit=0", (400, "invalid_limit", "limit")),
        ("GET", f"{LIST}?limit=101", (400, "invalid_limit", "limit")),
        ("GET", f"{LIST}?limit=ten", (400, "invalid_limit", "limit")),
        ("GET", f"{LIST}?after={NO_ID}", (400, "invalid_cursor", "after")),
        ("GET", f"{LIST}?after=", (400, "invalid_cursor", "after")),
        ("GET", f"{LIST}?after=%00&name=a%20b", (400, "invalid_cursor", "after")),
        ("POST", LIST, (415, "unsupported_media_type", None)),
        ("POST", f"{LIST}/{NO_ID}/try", (415, "unsupported_media_type", None)),
    ],
)
def test_an_impossible_request_gets_its_error(
    client: httpx.Client, method: str, path: str, expected: tuple[int, str | None, str | None]
) -> None:
    response = client.request(method, path)
    status, code, param = expected
    assert response.status_code == status
    assert response.headers["x-request-id"].startswith("req_")
    if code is not None:
        error = response.json()["error"]
        assert (error["code"], error["param"]) == (code, param)
    if status == 405:
        assert response.headers["allow"] == ("GET, POST" if path == LIST else "DELETE, GET")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"name": None}, (400, "missing_parameter", "name")),
        ({"file": None}, (400, "missing_parameter", "file")),
        ({"format": None}, (400, "missing_parameter", "format")),
        ({"name": "../../etc/passwd"}, (400, "invalid_name", "name")),
        ({"name": "\udcff\x00"}, (400, "invalid_name", "name")),
        ({"format": "castform"}, (400, "invalid_format", "format")),
        ({"format": "miles"}, (400, "wrong_kind", "format")),
        ({"file": b"def reward("}, (400, "syntax_error", "file")),
        ({"file": b"x = 1"}, (400, "no_reward_function", "file")),
        ({"file": b"PK\x03\x04" + bytes(range(256))}, (400, "invalid_encoding", "file")),
        ({"file": BREVITY + b"#" * MAX_BYTES}, (413, "file_too_large", "file")),
    ],
)
def test_a_refused_upload_gets_its_error_and_is_not_kept(
    client: httpx.Client, changed: dict[str, Any], expected: tuple[int, str, str]
) -> None:
    given: dict[str, Any] = {"name": "brevity", "format": "trl", "file": BREVITY} | changed
    parts = [("file", ("../../f.py", given["file"]))] if given["file"] is not None else []
    fields = [
        (key, (None, given[key].encode("utf-8", "surrogateescape")))
        for key in ("name", "format")
        if given[key] is not None
    ]
    before = client.get(LIST).json()
    response = client.post(LIST, files=[*fields, *parts])
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == expected
    assert client.get(LIST).json() == before


@pytest.mark.parametrize(
    ("content", "boundary", "code"),
    [
        (b"", "; boundary=x", "missing_parameter"),
        (b"--x\r\n", "; boundary=x", "missing_parameter"),
        (b"no boundary here", "; boundary=x", "malformed_body"),
        (b"x", "", "malformed_body"),
    ],
)
def test_a_malformed_form_gets_its_error(client: httpx.Client, content: bytes, boundary: str, code: str) -> None:
    response = client.post(LIST, content=content, headers={"Content-Type": f"multipart/form-data{boundary}"})
    assert error_of(response) == (400, "invalid_request_error", code)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "missing_parameter"),
        (b"{", "invalid_json"),
        (b"[" * 100_000, "malformed_body"),
        (b"\xff", "malformed_body"),
        (b"1" * 5000, "malformed_body"),
        (b"[]", "invalid_body"),
        (b"{}", "missing_parameter"),
        (b'{"rows": []}', "invalid_rows"),
        (b'{"rows": [{}]}', "missing_parameter"),
        (b'{"rows": [{"completions": []}]}', "invalid_rows"),
        (b'{"rows": [{"completions": [1]}]}', "invalid_rows"),
        (b'{"rows": [{"completions": ["a"], "more": 1}]}', "invalid_rows"),
        (b'{"rows": [{"completions": ["a"]}], "step": true}', "invalid_step"),
    ],
)
def test_a_malformed_try_gets_its_error(client: httpx.Client, content: bytes, code: str) -> None:
    response = client.post(f"{LIST}/{NO_ID}/try", content=content, headers={"Content-Type": "application/json"})
    assert error_of(response) == (400, "invalid_request_error", code)


def test_a_defect_is_logged_with_the_request_id_and_shows_no_internals(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(RewardFunctions, "list", lambda *_: 1 / 0)
    with caplog.at_level(logging.ERROR, "agent_tunix.web"):
        response = client.get(LIST)
    assert error_of(response) == (500, "server_error", "internal_error")
    assert "division" not in response.text
    (record,) = caplog.records
    assert response.headers["x-request-id"] in record.getMessage()
    assert record.exc_info


def test_an_unusable_store_is_reported_without_its_address(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the store at postgresql://user@secret.host/name could not be used")

    monkeypatch.setattr(RewardFunctions, "list", fail)
    response = client.get(LIST)
    assert error_of(response) == (503, "server_error", "store_unavailable")
    assert "secret.host" not in response.text
    assert response.headers["retry-after"]
