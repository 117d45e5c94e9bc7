"""Attacks on the inspector's pages: log-ins, sessions, requests from elsewhere."""

import re
from collections.abc import Iterator

import httpx

from tests.service.abuse.cases import answer, case, exchange, exchange_pieces, noise, request, stranger
from tests.service.abuse.victim import Victim
from tests.service.support import new_name

_COOKIE = "agent_tunix_session"
_FORM = "Content-Type: application/x-www-form-urlencoded"


def _log_in(client: httpx.Client, secret: str) -> str:
    """Log in; the session's token against requests from elsewhere."""
    assert client.post("/login", data={"key": secret}).status_code == 303
    found = re.search(r'name="csrf" content="([^"]+)"', client.get("/runs").text)
    assert found
    return found[1]


@case("a login with many invalid keys")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for number in range(60):
            yield answer(client.post("/login", data={"key": f"vk_{number:040}"}))
        assert client.post("/login", data={"key": victim.secret}).status_code == 303, "a valid key is shut out"


@case("a login with SQL or markup as the key")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for key in ("' OR 1=1 --", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "", "\0"):
            told = client.post("/login", data={"key": key, "next": key})
            assert "<script>alert" not in told.text
            assert "<img src=x" not in told.text
            yield answer(told)


@case("a login that redirects to another site")
def _(victim: Victim) -> Iterator[str]:
    for place in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/\r\nX-Injected: 1",
    ):
        with stranger(victim) as client:
            went = client.post("/login", data={"key": victim.secret, "next": place})
        assert went.headers["location"] == "/runs", went.headers["location"]
        yield answer(went)


@case("a body of two megabytes without a login")
def _(victim: Victim) -> Iterator[str]:
    for target in ("/login", "/functions", "/nothing"):
        yield from exchange(victim, request(victim, "POST", target, _FORM, "Content-Length: 2000000", secret=""))

        def pieces(target: str = target) -> Iterator[bytes]:
            yield request(victim, "POST", target, _FORM, "Transfer-Encoding: chunked", secret="")
            for piece in noise(1 << 24):
                yield b"%x\r\n%s\r\n" % (len(piece), piece)

        yield from exchange_pieces(victim, pieces())[0]


@case("an invented session")
def _(victim: Victim) -> Iterator[str]:
    for token in ("a" * 43, "", "../../etc/passwd", victim.secret):
        for path in ("/runs", f"/runs/{victim.run}/curves.json", f"/runs/{victim.run}/rollouts", "/functions"):
            yield from exchange(victim, request(victim, "GET", path, f"Cookie: {_COOKIE}={token}", secret=""))


@case("a session of a revoked key")
def _(victim: Victim) -> Iterator[str]:
    key, secret = victim.store.keys.create(new_name())
    with stranger(victim) as client:
        _log_in(client, secret)
        assert client.get("/runs").status_code == 200
        victim.store.keys.revoke(key.id)
        yield answer(client.get("/runs"))


@case("a change from another site, or without the session's token")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        csrf = _log_in(client, victim.secret)
        form = {"name": new_name(), "format": "trl", "source": "def reward(completions, **kwargs): return [0.0]"}
        for token in ("", "a" * 43, csrf[:-1]):
            yield answer(client.post("/functions", data=form | {"csrf": token}))
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            yield answer(client.post("/functions", data=form | {"csrf": csrf}, headers=headers))
        listed = client.get("/functions").text
        assert form["name"] not in listed


@case("a change in a page that the scopes do not allow")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        csrf = _log_in(client, victim.new_key("read"))
        yield answer(client.post("/functions", data={"csrf": csrf, "name": new_name()}))
    with stranger(victim) as client:
        assert client.post("/login", data={"key": victim.new_key("try")}).status_code == 303
        yield answer(client.get("/runs"))
        yield answer(client.get("/functions"))
