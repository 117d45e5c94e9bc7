"""Attacks by what is asked for, and as whom: paths, SQL, cursors, headers, keys."""

from collections.abc import Iterator
from urllib.parse import quote

from tests.service.abuse.cases import answer, answers, asks, case, exchange, raw, read_all, request, stranger, uploads
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


raw(
    "a path that leads out of the API, in every spelling",
    *(("GET", t) for t in _WAYS_OUT),
    ("GET", f"{LIST}/\udcff\udcfe"),
)
uploads(
    "a name or a file name that leads out of the store",
    *("../../etc/passwd", "/etc/passwd", "..", "a/b", "a\0b", "a%2fb", "\u202egnp", "store.db/../x"),
)
raw(
    "the API without a key, its path spelled differently",
    ("GET", "/%76%31/reward_functions"),
    ("GET", "/v1%2freward_functions"),
    ("GET", "//v1/reward_functions"),
    ("GET", "/./v1/reward_functions"),
    ("GET", "/x/../v1/reward_functions"),
    ("GET", "/openapi.json/../v1/reward_functions"),
    ("GET", "/V1/reward_functions"),
    ("GET", "/v1/reward_functions%00"),
    ("GET", "http://x/v1/reward_functions"),
    secret="",
)
raw("an unknown method", *((m, LIST) for m in ("PUT", "PATCH", "TRACE", "OPTIONS", "PROPFIND", "DELETE")))


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


asks("SQL in an id", *((m, f"{LIST}/{quote(text, safe='')}", {}) for text in _SQL for m in ("GET", "DELETE")))
uploads("SQL in an uploaded name", *(text for text in _SQL if text.strip("_")))
asks("SQL in a cursor or a limit", *(("GET", LIST, {param: text}) for text in _SQL for param in ("after", "limit")))
asks(
    "SQL in a key",
    *(("GET", LIST, {"Authorization": f"Bearer {prefix}{text}"}) for text in _SQL for prefix in ("", "vk_")),
    has_key=False,
)


@case("SQL in a searched name")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in _SQL:
            found = client.get(LIST, params={"name": text})
            assert found.json()["data"] == []
            yield answer(found)


# --- cursors ---------------------------------------------------------------------------------------------------------


_CURSORS = (NO_ID, "1", "", "rf_", "\0", "é" * 27, "a" * 5000, "../x")
asks(
    "an invented cursor, or one of another list",
    *(("GET", path, {"after": after}) for after in _CURSORS for path in (LIST, "/v1/runs")),
)
_NUMBERS = ("0", "-1", "101", "1e3", "9" * 40, "9" * 5000, "NaN", "\uff11")
asks(
    "a number out of range",
    *(("GET", LIST, {"limit": number}) for number in _NUMBERS),
    *(("GET", "/v1/runs/{run}/metrics", {param: "9" * 40}) for param in ("after", "limit")),
    *(("GET", "/v1/runs/{run}/rollouts", {param: "-1e999"}) for param in ("step", "group", "min_reward")),
)


@case("a cursor of another query")
def _(victim: Victim) -> Iterator[str]:
    path = f"/v1/runs/{victim.run}/rollouts"
    with victim.client() as client:
        cursor = client.get(path, params={"step": 1, "limit": 1}).json()["next"]
        assert client.get(path, params={"step": 1, "after": cursor}).status_code == 200
        for changed in ("step=2", "step=1&sort=reward", "step=1&q=x", "limit=1"):
            yield answer(client.get(f"{path}?{changed}&after={cursor}"))
        yield answer(client.get(path, params={"step": 1, "after": cursor[:-2] + "AA"}))


# --- headers ---------------------------------------------------------------------------------------------------------


@case("line ends that could begin a header")
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


@case("bytes that are not HTTP/1.1")
def _(victim: Victim) -> Iterator[str]:
    for sent in (b"\x16\x03\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        yield from exchange(victim, sent)


@case("headers without end")
def _(victim: Victim) -> Iterator[str]:
    yield from exchange(victim, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 17))
    yield from exchange(victim, b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * (1 << 15))


# --- keys ------------------------------------------------------------------------------------------------------------


asks(
    "an unknown or malformed key",
    ("GET", LIST, {"Authorization": f"Bearer vk_{'a' * 40}"}),
    ("GET", LIST, {"Authorization": f"Bearer vk_{'a' * 30_000}"}),
    ("GET", LIST, {"Authorization": "Bearer {secret}x"}),
    ("GET", LIST, {"Authorization": "Basic {secret}"}),
    has_key=False,
)
asks(
    "a key outside its header",
    *(("GET", f"{LIST}?{param}={{secret}}", {}) for param in ("key", "access_token", "Authorization")),
    ("GET", LIST, {"X-API-Key": "{secret}"}),
    ("GET", LIST, {"Cookie": "agent_tunix_session={secret}"}),
    has_key=False,
)


@case("many invalid keys")
def _(victim: Victim) -> Iterator[str]:
    with stranger(victim) as client:
        for number in range(60):
            yield answer(client.get(LIST, headers={"Authorization": f"Bearer vk_{number:040}"}))
        valid = {"Authorization": f"Bearer {victim.secret}"}
        assert client.get(LIST, headers=valid).status_code == 200, "a valid key is shut out"


@case("a revoked key on an open connection")
def _(victim: Victim) -> Iterator[str]:
    key, secret = victim.store.keys.create(new_name())
    with victim.client(secret) as client:
        assert client.get(LIST).status_code == 200
        victim.store.keys.revoke(key.id)
        yield answer(client.get(LIST))
        yield answer(upload(client, new_name()))


@case("a key that is revoked during an upload")
def _(victim: Victim) -> Iterator[str]:
    key, secret = victim.store.keys.create(new_name())
    lines = ["Content-Type: multipart/form-data; boundary=x", "Content-Length: 100", "Expect: 100-continue"]
    with victim.connected() as connection:
        connection.sendall(request(victim, "POST", LIST, *lines, secret=secret))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        victim.store.keys.revoke(key.id)
        connection.sendall(b"x" * 100)
        yield from answers(read_all(connection))


@case("a call that the scopes do not allow")
def _(victim: Victim) -> Iterator[str]:
    with victim.client(victim.new_key("read")) as client:
        yield answer(upload(client, new_name()))
        yield answer(client.delete(f"{LIST}/{NO_ID}"))
        yield answer(client.post(f"{LIST}/{NO_ID}/try", json={"rows": [{"completions": ["a"]}]}))
    with victim.client(victim.new_key("write", "try")) as client:
        yield answer(client.get(LIST))
        yield answer(client.get(f"/v1/runs/{victim.run}"))


@case("deleting another key's function")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as alice, victim.client(victim.new_key()) as bob:
        id = upload(alice, new_name()).json()["id"]
        yield answer(bob.delete(f"{LIST}/{id}"))
        assert alice.get(f"{LIST}/{id}").status_code == 200


@case("uploading under another key's name")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as alice, victim.client(victim.new_key()) as bob:
        name = new_name()
        upload(alice, name)
        yield answer(upload(bob, name))
