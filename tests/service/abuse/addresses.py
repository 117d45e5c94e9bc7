"""Attacks by what is asked for, and as whom: paths, SQL, cursors, headers, keys."""

from collections.abc import Iterator

from tests.service.abuse.cases import answer, answers, asks, case, exchange, raw, read_all, request
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import new_name, upload

NO_ID = "rf_" + "a" * 24


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


asks(
    "a key outside its header",
    *(("GET", f"{LIST}?{param}={{secret}}", {}) for param in ("key", "access_token", "Authorization")),
    ("GET", LIST, {"X-API-Key": "{secret}"}),
    ("GET", LIST, {"Cookie": "agent_tunix_session={secret}"}),
    has_key=False,
)


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
