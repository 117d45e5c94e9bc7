from collections.abc import Iterator

import httpx
import pytest
from starlette import requests

from agent_tunix.errors import StoreError
from agent_tunix.service import ServiceSettings
from agent_tunix.service.middleware import COOKIE, HEADERS
from agent_tunix.service.runs import RunIndex
from agent_tunix.store import Key
from agent_tunix.store.keys import Keys
from tests.service.inspector.support import BROWSER, visiting
from tests.service.support import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    (directory / "runs").mkdir()
    settings = ServiceSettings(runs=(directory / "runs",))
    with serving(directory, settings) as server:
        yield server


def log_in(client: httpx.Client, secret: str, **more: str) -> httpx.Response:
    return client.post("/login", data={"key": secret} | more)


@pytest.fixture
def nobody(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=BROWSER) as client:
        yield client


def test_the_cookie_of_a_session_is_hidden_from_scripts_and_other_sites(server: Server, nobody: httpx.Client) -> None:
    answer = log_in(nobody, f"  {server.secret}\n")
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie
    assert "domain" not in cookie
    assert server.secret.lower() not in cookie
    assert nobody.get("/runs").status_code == 200
    for forwarded in ("https", "HTTPS", "https, http"):
        answer = nobody.post("/login", data={"key": server.secret}, headers={"X-Forwarded-Proto": forwarded})
        assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "cookie", ['"' + "\\a" * 30_000 + '"', " " * 60_000 + "x", "a=b; " * 12_000 + "c=d"], ids=range(3)
)
def test_only_the_cookie_of_the_session_is_parsed(server: Server, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = requests.cookie_parser

    def note(text: str) -> dict[str, str]:
        parsed.append(text)
        return real(text)

    monkeypatch.setattr(requests, "cookie_parser", note)
    with visiting(server) as alice, httpx.Client(base_url=server.url, timeout=600) as client:
        mine = f"{COOKIE}={alice.client.cookies[COOKIE]}"
        for header, is_logged_in in ((f"{COOKIE}={cookie}", False), (f"x={cookie}; {mine}", True), (mine, True)):
            answer = client.get("/login/status", headers={"Cookie": header})
            assert answer.json() == {"is_logged_in": is_logged_in}
    assert set(parsed) == {mine}


@pytest.mark.parametrize("secret", ["", "vk_" + "a" * 40, "\x00", "ü" * 2000, "<script>alert(1)</script>", "' OR 1=1"])
def test_an_invalid_key_is_refused_and_not_repeated(nobody: httpx.Client, secret: str) -> None:
    answer = log_in(nobody, secret)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "The API key is not valid".lower() in answer.text.lower()
    assert len(secret) < 10 or secret not in answer.text


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/runs/run_a/rollouts?step=3&q=x", "/runs/run_a/rollouts?step=3&q=x"),
        ("https://evil.example/runs", "/runs"),
        ("//evil.example", "/runs"),
        ("javascript:alert(1)", "/runs"),
        ("/\\evil.example", "/runs"),
        ("/\t/evil.example", "/runs"),
        ("/runs\r\nSet-Cookie: a=b", "/runs"),
        ("", "/runs"),
        ("/login?next=/login", "/runs"),
        ("/" + "a" * 5000, "/runs"),
    ],
)
def test_logging_in_leads_to_a_page_of_this_site(server: Server, nobody: httpx.Client, wanted: str, place: str) -> None:
    assert log_in(nobody, server.secret, next=wanted).headers["location"] == place


def test_a_page_leads_to_the_form_and_from_there_back(server: Server, nobody: httpx.Client) -> None:
    answer = nobody.get("/runs?after=x")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fruns%3Fafter%3Dx")
    assert 'name="next" value="/runs?after=x"' in nobody.get(answer.headers["location"]).text


def test_a_script_without_a_session_is_answered_in_json(server: Server) -> None:
    answer = httpx.get(f"{server.url}/runs", headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "not_logged_in")


def test_a_revoked_key_is_out_at_once_and_its_successor_does_not_bring_it_back(server: Server) -> None:
    key, secret = server.store.keys.create("carol")
    with visiting(server, secret) as carol:
        server.store.keys.revoke("carol")
        assert carol.get("/runs").status_code == 303
        again, _ = server.store.keys.create("carol")
        assert again.id == key.id
        assert carol.get("/runs").status_code == 303


def test_logging_out_or_in_again_ends_the_session(server: Server) -> None:
    with visiting(server) as alice:
        first = dict(alice.client.cookies)
        log_in(alice.client, server.secret)
        second = dict(alice.client.cookies)
        assert alice.get("/runs").status_code == 200
    with visiting(server) as alice:
        third = dict(alice.client.cookies)
        answer = alice.post("/logout")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert not alice.client.cookies
    for cookies, status in ((first, 303), (second, 200), (third, 303)):
        assert httpx.get(f"{server.url}/runs", headers=BROWSER, cookies=cookies).status_code == status


def test_the_form_redirects_a_logged_in_browser(server: Server) -> None:
    with visiting(server) as alice:
        answer = alice.get("/login?next=/runs%3Fafter%3Dx")
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs?after=x")
        assert alice.get("/login/status").json() == {"is_logged_in": True}
    assert httpx.get(f"{server.url}/login/status").json() == {"is_logged_in": False}


def test_a_key_that_may_not_look_gets_a_page_that_says_so(server: Server, nobody: httpx.Client) -> None:
    log_in(nobody, server.new_key("try"))
    answer = nobody.get("/runs")
    assert answer.status_code == 403
    assert "lacks the scope" in answer.text
    assert 'href="/functions"' not in answer.text
    assert "Log out" in answer.text


@pytest.mark.parametrize(
    ("headers", "token", "status"),
    [
        ({}, None, 403),
        ({}, "x" * 43, 403),
        ({"Origin": "https://evil.example"}, "own", 403),
        ({"Origin": "null"}, "own", 403),
        ({"Origin": "http://[evil"}, "own", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "own", 403),
        ({"Sec-Fetch-Site": "same-site"}, "own", 403),  # another port of this machine
        ({"X-CSRF-Token": "wrong"}, "own", 403),
        ({"Content-Type": "text/plain"}, None, 403),
        ({"Sec-Fetch-Site": "same-origin"}, "own", 303),
        ({}, "own", 303),
    ],
)
def test_a_change_needs_the_sessions_token_and_this_sites_origin(
    server: Server, headers: dict[str, str], token: str | None, status: int
) -> None:
    with visiting(server) as alice:
        data = {} if token is None else {"csrf": alice.csrf if token == "own" else token}
        assert alice.client.post("/logout", data=data, headers=headers).status_code == status
        assert (alice.get("/runs").status_code == 200) is (status == 403)


def test_a_token_counts_for_its_own_session_and_site(server: Server, nobody: httpx.Client) -> None:
    with visiting(server) as alice, visiting(server, server.new_key()) as bob:
        assert alice.client.post("/logout", data={"csrf": bob.csrf}).status_code == 403
    answer = nobody.post("/login", data={"key": server.secret}, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/", "/login", "/runs", "/nothing", "/static/inspector.css", "/static/nothing.js", "/login/status"]
)
def test_every_answer_has_the_security_headers(server: Server, path: str) -> None:
    with visiting(server) as alice:
        answer = alice.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        kept = "no-cache" if answer.status_code == 200 and path.startswith("/static") else "no-store"
        assert answer.headers["cache-control"] == kept
        assert "'unsafe" not in answer.headers["content-security-policy"]


def test_errors_are_pages_for_people_and_json_for_programs(server: Server) -> None:
    with visiting(server) as alice:
        for path, status in (("/nothing", 404), ("/runs/run_x", 404), ("/runs?after=x", 400)):
            page = alice.get(path)
            assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert page.headers["x-request-id"] in page.text
            told = alice.get(path, headers={"Accept": "application/json"})
            assert (told.status_code, list(told.json())) == (status, ["error"])
        assert alice.client.put("/runs").status_code == 405
    assert httpx.get(f"{server.url}/v1/nothing", headers=BROWSER).headers["content-type"] == "application/json"


def test_an_unreachable_store_is_reported_on_a_page(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with visiting(server) as alice:

        def away(self: Keys, id: str) -> Key:
            raise StoreError("postgresql://user:password@host cannot be reached")

        monkeypatch.setattr(Keys, "get", away)
        page = alice.get("/runs")
        assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "password" not in page.text
        assert page.headers["retry-after"]
        monkeypatch.undo()
        assert alice.get("/runs").status_code == 200


def test_a_defect_is_reported_on_a_page_without_internals(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RunIndex, limit: int, after: str | None) -> None:
        raise RuntimeError("something inside")

    monkeypatch.setattr(RunIndex, "list", broken)
    with visiting(server) as alice:
        page = alice.get("/runs")
    assert page.status_code == 500
    assert "something inside" not in page.text
    assert page.headers["x-request-id"] in page.text
    assert page.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


def test_the_api_takes_no_session_and_its_document_has_no_page(server: Server) -> None:
    with visiting(server) as alice:
        assert alice.get("/v1/runs").status_code == 401
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    assert all(path.startswith("/v1/") for path in paths)


@pytest.mark.parametrize("name", ["..%2fpages.py", "%2e%2e/pages.py", "../pages.py", "inspector.css%00", "."])
def test_no_other_file_is_an_asset(server: Server, name: str) -> None:
    assert httpx.get(f"{server.url}/static/{name}").status_code == 404


@pytest.mark.parametrize("path", ["/login", "/functions", "/functions/rf_x/try", "/nothing"])
def test_a_large_body_needs_a_session(server: Server, path: str) -> None:
    with visiting(server, None) as stranger:
        answer = stranger.post(path, {"source": "x" * 20_000})
        assert (answer.status_code, "log in" in answer.text) == (413, True)
        in_chunks = stranger.client.post(path, content=iter([b"x" * 10_000] * 200))
        assert in_chunks.status_code == 413
    with visiting(server) as alice:
        assert alice.post(path, {"source": "x" * 20_000}).status_code != 413
