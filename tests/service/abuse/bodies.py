"""Attacks by what is sent: too much, too little, too deep, packed, or meant for somebody else."""

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator

import httpx

from tests.service.abuse.cases import answer, case, exchange_pieces, noise, request
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import BREVITY, new_name, upload

GIGABYTE = 1 << 30
# What a connection may take of it before it is ended.
_MOST_TAKEN = 64 << 20
_FORM = "Content-Type: multipart/form-data; boundary=x"
_JSON = {"Content-Type": "application/json"}


@case("a body of a gigabyte in chunks")
def _(victim: Victim) -> Iterator[str]:
    def pieces() -> Iterator[bytes]:
        yield request(victim, "POST", LIST, _FORM, "Transfer-Encoding: chunked")
        for piece in noise(GIGABYTE):
            yield b"%x\r\n%s\r\n" % (len(piece), piece)

    found, taken = exchange_pieces(victim, pieces())
    assert taken < _MOST_TAKEN, f"{taken:,} bytes were taken"
    yield from found


@case("a gigabyte behind a small Content-Length")
def _(victim: Victim) -> Iterator[str]:
    def pieces() -> Iterator[bytes]:
        yield request(victim, "POST", LIST, _FORM, "Content-Length: 10").replace(b"Connection: close\r\n", b"")
        yield from noise(GIGABYTE)

    found, taken = exchange_pieces(victim, pieces())
    assert taken < _MOST_TAKEN, f"{taken:,} bytes were taken"
    yield from found


@case("a gigabyte sent to a request that takes no body")
def _(victim: Victim) -> Iterator[str]:
    def pieces() -> Iterator[bytes]:
        yield request(victim, "GET", LIST, f"Content-Length: {GIGABYTE}")
        yield from noise(GIGABYTE)

    found, taken = exchange_pieces(victim, pieces())
    assert taken < _MOST_TAKEN, f"{taken:,} bytes were taken"
    yield from found


@case("a body shorter than its Content-Length")
def _(victim: Victim) -> Iterator[str]:
    with victim.connected() as connection:
        connection.sendall(request(victim, "POST", LIST, _FORM, "Content-Length: 1000") + b"x" * 10)
    yield "no answer"


@case("a form of ten thousand parts, or without an end")
def _(victim: Victim) -> Iterator[str]:
    part = b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\na\r\n'
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.py"\r\n'
    forms = {
        "parts": part * 10_000 + b"--x--\r\n",
        "files": (file + b"\r\n\r\n") * 10_000 + b"--x--\r\n",
        "a name without end": b'--x\r\nContent-Disposition: form-data; name="' + b"n" * 1_000_000,
        "a header without end": file + b"X: " + b"x" * 1_000_000,
        "headers without end": file + b"X: x\r\n" * 100_000,
        "a field of a megabyte": b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n' + b"a" * 1_100_000,
        "no end": part + file + b"\r\n" + BREVITY,
        "no beginning": b"\r\n" * 100_000,
    }
    with victim.client() as client:
        for content in forms.values():
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            yield answer(client.post(LIST, content=content, headers=headers))
        for boundary in ("", "x" * 10_000, '"', "--"):
            headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            yield answer(client.post(LIST, content=part, headers=headers))


def _try(client: httpx.Client, content: bytes) -> httpx.Response:
    """Try a function with a body as it stands."""
    id = upload(client, new_name()).json()["id"]
    return client.post(f"{LIST}/{id}/try", content=content, headers=_JSON)


def _nested(depth: int) -> bytes:
    return b'{"rows": [{"completions": ["a"], "columns": {"x": ' + b"[" * depth + b"]" * depth + b"}}]}"


@case("JSON nested a hundred thousand deep")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        closed = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
        for content in (_nested(100_000), b"[" * 1_000_000, b'{"rows":' * 100_000, closed):
            yield answer(_try(client, content))


@case("a deeply nested column", slow=True)
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for depth in (50, 150, 400, 700, 900, 990):
            yield answer(_try(client, _nested(depth)))


@case("completions of two megabytes")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        yield answer(_try(client, json.dumps({"rows": [{"completions": ["a" * 2_000_000]}]}).encode()))


@case("a compressed body of a gigabyte")
def _(victim: Victim) -> Iterator[str]:
    bombs = {"gzip": gzip.compress(bytes(GIGABYTE // 8), 1), "deflate": zlib.compress(bytes(GIGABYTE // 8), 1)}
    with victim.client() as client:
        for encoding, bomb in bombs.items():
            for path in (LIST, f"{LIST}/rf_{'a' * 24}/try"):
                yield answer(client.post(path, content=bomb, headers={"Content-Encoding": encoding}))


@case("a compressed file of a gigabyte")
def _(victim: Victim) -> Iterator[str]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("reward.py", bytes(GIGABYTE // 8))
    with victim.client() as client:
        yield answer(upload(client, new_name(), archive.getvalue()))
        yield answer(upload(client, new_name(), gzip.compress(bytes(GIGABYTE // 8))))


@case("a file with HTML, and a file name that leads out")
def _(victim: Victim) -> Iterator[str]:
    source = b"# <script>alert(1)</script>\n" + BREVITY
    form = {"name": new_name(), "format": "trl"}
    with victim.client() as client:
        made = client.post(LIST, data=form, files={"file": ('../../evil.py"\r\nX-Injected: 1', source)})
        yield answer(made)
        given = client.get(f"{LIST}/{made.json()['id']}/source")
    assert given.headers["content-type"].startswith("text/x-python")
    assert given.headers["x-content-type-options"] == "nosniff"
    assert given.headers["content-disposition"].startswith("attachment")


@case("HTML in a name or a path")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        for text in ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{7*7}}", "javascript:alert(1)"):
            yield answer(upload(client, text))
            told = client.get(f"/v1/{text}")
            assert told.headers["content-type"] == "application/json"
            assert told.headers["x-content-type-options"] == "nosniff"
            yield answer(told)
