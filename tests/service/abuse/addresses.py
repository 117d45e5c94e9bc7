"""Attacks by what is asked for, and as whom: paths, SQL, cursors, headers, keys."""

from collections.abc import Iterator
from urllib.parse import quote

from tests.service.abuse.cases import answer, answers, case, exchange, read_all, request, stranger
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import new_name, upload

NO_ID = "rf_" + "a" * 24

# --- paths -----------------------------------------------------------------------------------------------------------

_WAYS_OUT = [
    "/../../../../etc/passwd",
    "/v1/../../../../etc/passwd",
    f"{LIST}/../../../../../etc/passwd",
    f"{LIST}/..%2f..%2f..%2f..%2fetc%2fpasswd/source",
    f"{LIST}/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    f"{LIST}/%252e%252e%252f%252e%252e%252fetc%252fpasswd",
    f"{LIST}/..%5c..%5cstore.db",
    f"{LIST}/..%c0%af..%c0%afetc%c0%afpasswd",
    f"{LIST}/..;/..;/etc/passwd",
    f"{LIST}//etc/passwd",
    f"{LIST}/%2fetc%2fpasswd/source",
    f"{LIST}/{NO_ID}%00.py/source",
    f"{LIST}/%00",
    "/v1/runs/..%2f..%2f..%2fetc/rollouts",
    "/v1/runs/%2e%2e/metrics",
    "/v1/runs/one/findings",
    "/static/../../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static/%2e%2e/%2e%2e/app.py",
    "/static//etc/passwd",
    "//etc/passwd",
    "file:///etc/passwd",
    "http://localhost/etc/passwd",
]


@case("a path that leads out, however it is written")
def _(victim: Victim) -> Iterator[str]:
    for target in _WAYS_OUT:
        yield from exchange(victim, request(victim, "GET", target))
    yield from exchange(victim, request(victim, "GET", f"{LIST}/\udcff\udcfe"))


@case("a name or a file name that leads out")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for name in ("../../etc/passwd", "/etc/passwd", "..", "a/b", "a\0b", "a%2fb", "\u202egnp", "store.db/../x"):
            yield answer(upload(client, name))


@case("the API without a key, its path written otherwise")
def _(victim: Victim) -> Iterator[str]:
    for target in (
        "/%76%31/reward_functions",
        "/v1%2freward_functions",
        "//v1/reward_functions",
        "/./v1/reward_functions",
        "/x/../v1/reward_functions",
        "/openapi.json/../v1/reward_functions",
        "/V1/reward_functions",
        "/v1/reward_functions%00",
        "http://x/v1/reward_functions",
    ):
        yield from exchange(victim, request(victim, "GET", target, secret=""))


@case("a method that there is not")
def _(victim: Victim) -> Iterator[str]:
    for method in ("PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND", "DELETE"):
        yield from exchange(victim, request(victim, method, LIST))


# --- SQL -------------------------------------------------------------------------------------------------------------

_SQL = [
    "' OR '1'='1",
    "x'; DROP TABLE keys; --",
    '" OR ""="',
    "1) UNION SELECT secret_sha256, 1, 1, 1, 1, 1, 1, 1 FROM keys --",
    "\\'; SELECT pg_sleep(30); --",
    "rf_' || (SELECT secret_sha256 FROM keys) || '",
    "%",
    "_" * 24,
]


@case("SQL in an id")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in _SQL:
            yield answer(client.get(f"{LIST}/{quote(text, safe='')}"))
            yield answer(client.delete(f"{LIST}/{quote(text, safe='')}"))


@case("SQL in a name that is looked for")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in _SQL:
            found = client.get(LIST, params={"name": text})
            assert found.json()["data"] == []
            yield answer(found)


@case("SQL in a name that is uploaded")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in (one for one in _SQL if one.strip("_")):
            yield answer(upload(client, text))


@case("SQL in a cursor or a limit")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in _SQL:
            for param in ("after", "limit"):
                yield answer(client.get(LIST, params={param: text}))


@case("SQL in a key")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for text in _SQL:
            yield answer(client.get(LIST, headers={"Authorization": f"Bearer {text}"}))
            yield answer(client.get(LIST, headers={"Authorization": f"Bearer vk_{text}"}))


# --- cursors ---------------------------------------------------------------------------------------------------------


@case("a cursor that was made up, or is another list's")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for after in (NO_ID, victim.run, "1", "", "rf_", "\0", "é" * 27, "a" * 5000, "../x"):
            yield answer(client.get(LIST, params={"after": after}))
            yield answer(client.get("/v1/runs", params={"after": after if after != victim.run else NO_ID}))


@case("a cursor of another query")
def _(victim: Victim) -> Iterator[str]:
    path = f"/v1/runs/{victim.run}/rollouts"
    with victim.client() as client:
        cursor = client.get(path, params={"step": 1, "limit": 1}).json()["next"]
        assert client.get(path, params={"step": 1, "after": cursor}).status_code == 200
        for changed in ("step=2", "step=1&sort=reward", "step=1&q=x", "limit=1"):
            yield answer(client.get(f"{path}?{changed}&after={cursor}"))
        yield answer(client.get(path, params={"step": 1, "after": cursor[:-2] + "AA"}))


@case("a number out of all bounds")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for number in ("0", "-1", "101", "1e3", "9" * 40, "9" * 5000, "NaN", "\uff11"):
            yield answer(client.get(LIST, params={"limit": number}))
        for param in ("after", "limit"):
            yield answer(client.get(f"/v1/runs/{victim.run}/metrics", params={param: "9" * 40}))
        for param in ("step", "group", "min_reward"):
            yield answer(client.get(f"/v1/runs/{victim.run}/rollouts", params={param: "-1e999"}))


# --- headers ---------------------------------------------------------------------------------------------------------


@case("line ends where a header could begin")
def _(victim: Victim) -> Iterator[str]:
    injected = "\r\nX-Injected: 1"
    yield from exchange(victim, request(victim, "GET", f"{LIST}?after=%0d%0aX-Injected:%201"))
    for line in ("X: a\rX-Injected: 1", "X: a\0b", "X\r: 1", "X : 1", "X", ": 1"):
        yield from exchange(victim, request(victim, "GET", LIST, line))
    with victim.client() as client:
        yield answer(upload(client, f"a{injected}"))
        yield answer(client.get(LIST, params={"after": f"{NO_ID}{injected}"}))


@case("a request hidden in another")
def _(victim: Victim) -> Iterator[str]:
    hidden = b"0\r\n\r\n" + request(victim, "DELETE", f"{LIST}/{NO_ID}")
    for lines in (
        [f"Content-Length: {len(hidden)}", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding : chunked"],
        ["Content-Length: +5"],
        ["Content-Length: -1"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 6"],
    ):
        typed = "Content-Type: multipart/form-data; boundary=x"
        found = exchange(victim, request(victim, "POST", LIST, typed, *lines), hidden)
        assert len(found) == 1, found
        yield from found


@case("what is no HTTP/1.1")
def _(victim: Victim) -> Iterator[str]:
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        yield from exchange(victim, sent)


@case("headers without end")
def _(victim: Victim) -> Iterator[str]:
    yield from exchange(victim, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 17))
    yield from exchange(victim, b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * (1 << 15))


# --- keys ------------------------------------------------------------------------------------------------------------


@case("a key that was never made, or is none")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for secret in ("vk_" + "a" * 40, "vk_" + "a" * 30_000, victim.secret[:-1], victim.secret.swapcase()):
            yield answer(client.get(LIST, headers={"Authorization": f"Bearer {secret}"}))
        yield answer(client.get(LIST, headers={"Authorization": f"Basic {victim.secret}"}))


@case("a key anywhere but in its header")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for param in ("key", "access_token", "Authorization"):
            yield answer(client.get(LIST, params={param: victim.secret}))
        yield answer(client.get(LIST, headers={"X-API-Key": victim.secret}))
        yield answer(client.get(LIST, headers={"Cookie": f"agent_tunix_session={victim.secret}"}))


@case("one key after another that is not valid")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for number in range(60):
            yield answer(client.get(LIST, headers={"Authorization": f"Bearer vk_{number:040}"}))
        valid = {"Authorization": f"Bearer {victim.secret}"}
        assert client.get(LIST, headers=valid).status_code == 200, "a valid key is shut out"


@case("a key that is revoked, on a connection that stays open")
def _(victim: Victim) -> Iterator[str]:
    key, secret = victim.store.keys.create(new_name())
    with victim.client(secret) as client:
        assert client.get(LIST).status_code == 200
        victim.store.keys.revoke(key.id)
        yield answer(client.get(LIST))
        yield answer(upload(client, new_name()))


@case("a key that is revoked while an upload comes in")
def _(victim: Victim) -> Iterator[str]:
    key, secret = victim.store.keys.create(new_name())
    lines = ["Content-Type: multipart/form-data; boundary=x", "Content-Length: 100", "Expect: 100-continue"]
    with victim.connected() as connection:
        connection.sendall(request(victim, "POST", LIST, *lines, secret=secret))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        victim.store.keys.revoke(key.id)
        connection.sendall(b"x" * 100)
        yield from answers(read_all(connection))


@case("what a key's scopes do not allow")
def _(victim: Victim) -> Iterator[str]:
    with victim.client(victim.new_key("read")) as client:
        yield answer(upload(client, new_name()))
        yield answer(client.delete(f"{LIST}/{NO_ID}"))
        yield answer(client.post(f"{LIST}/{NO_ID}/try", json={"rows": [{"completions": ["a"]}]}))
    with victim.client(victim.new_key("write", "try")) as client:
        yield answer(client.get(LIST))
        yield answer(client.get(f"/v1/runs/{victim.run}"))


@case("another's function, deleted")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as alice, victim.client(victim.new_key()) as bob:
        id = upload(alice, new_name()).json()["id"]
        yield answer(bob.delete(f"{LIST}/{id}"))
        assert alice.get(f"{LIST}/{id}").status_code == 200


@case("another's name, uploaded under")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as alice, victim.client(victim.new_key()) as bob:
        name = new_name()
        upload(alice, name)
        yield answer(upload(bob, name))
