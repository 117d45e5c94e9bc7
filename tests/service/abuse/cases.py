"""Attacks, and what they see."""

import contextlib
import itertools
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import httpx

from tests.service.abuse.victim import PLANTED, Victim

# Instead of a status where a connection ended without one.
NO_ANSWER = "no answer"

_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3}) .*?\r\n\r\n(.*?)(?=HTTP/1\.1 \d{3} |\Z)", re.DOTALL)
_CODE = re.compile(rb'^\{"error":\{"type":"[a-z_]+","code":"([a-z_]+)"')
# What no answer may hold: of /etc/passwd, of the server's environment, of its own code, of a header that was injected.
_SECRETS = (b"root:x:", PLANTED.encode(), b"Traceback", b"\nx-injected:")
_SENDS_BYTES = 1 << 16
_addresses = itertools.count(2)

Act = Callable[[Victim], Iterable[str]]


@dataclass(frozen=True)
class Case:
    """An attack, under its name on the page.

    `act` makes it and yields every answer, as `404 path_not_found`. It raises AssertionError for a forbidden answer.
    """

    name: str
    act: Act
    is_slow: bool


CASES: dict[str, Case] = {}


def case(name: str, slow: bool = False) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        assert name not in CASES
        CASES[name] = Case(name, act, slow)
        return act

    return add


def raw(name: str, *requests: tuple[str, ...], secret: str | None = None) -> None:
    """Make an attack of requests that are sent as they stand: method, target and further lines."""

    def act(victim: Victim) -> Iterator[str]:
        for method, target, *lines in requests:
            yield from exchange(victim, request(victim, method, target, *lines, secret=secret))

    case(name)(act)


def asks(name: str, *requests: tuple[str, str, dict[str, str]], has_key: bool = True) -> None:
    """Make an attack of requests of a client: method, path and parameters; without a key, the parameters are headers.

    `{run}` in a path is the id of a run, `{secret}` in a path or header the key of alice.
    """

    def act(victim: Victim) -> Iterator[str]:
        with victim.client() if has_key else stranger(victim) as client:
            for method, path, given in requests:
                path = path.replace("{run}", victim.run).replace("{secret}", victim.secret)
                if has_key:
                    yield answer(client.request(method, path, params=given))
                else:
                    headers = {key: value.replace("{secret}", victim.secret) for key, value in given.items()}
                    yield answer(client.request(method, path, headers=headers))

    case(name)(act)


def answer(response: httpx.Response) -> str:
    """Return a response as the table writes it."""
    (found,) = answers(f"HTTP/1.1 {response.status_code} x\r\n\r\n".encode() + response.content)
    return found


def answers(said: bytes) -> list[str]:
    """Return the bytes of responses as the table writes them."""
    for secret in _SECRETS:
        assert secret.lower() not in said.lower(), f"{secret!r} is in {said[:2000]!r}"
    found = []
    for status, body in _ANSWER.findall(said):
        code = _CODE.match(body)
        found.append(status.decode() + (f" {code[1].decode()}" if code else ""))
    return found or [NO_ANSWER]


def request(victim: Victim, method: str, target: str, *lines: str, secret: str | None = None) -> bytes:
    """A request up to its body, as it stands: nothing of it is put right. "" for no key; alice's if none is given."""
    secret = victim.secret if secret is None else secret
    given = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close", *lines]
    if secret:
        given.append(f"Authorization: Bearer {secret}")
    return "\r\n".join([*given, "", ""]).encode("utf-8", "surrogateescape")


def exchange(victim: Victim, *sent: bytes) -> list[str]:
    """Send bytes on a new connection; return the answers until the server ends it."""
    return exchange_pieces(victim, sent)[0]


def exchange_pieces(victim: Victim, pieces: Iterable[bytes]) -> tuple[list[str], int]:
    """The same, and how many bytes the connection took."""
    taken = 0
    with victim.connected() as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
                taken += len(piece)
        return answers(read_all(connection)), taken


def read_all(connection: socket.socket) -> bytes:
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            said += data
    return said


def noise(num_bytes: int) -> Iterator[bytes]:
    for _ in range(num_bytes // _SENDS_BYTES):
        yield b"x" * _SENDS_BYTES


@contextlib.contextmanager
def stranger(victim: Victim) -> Iterator[httpx.Client]:
    """Somebody without a key, from an address that nobody has come from."""
    transport = httpx.HTTPTransport(local_address=f"127.0.1.{next(_addresses)}")
    with httpx.Client(transport=transport, base_url=victim.url, timeout=600) as client:
        yield client
