"""Attacks by number and by time: slow ones, and many at once."""

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.service.abuse.cases import answer, answers, case, read_all, request
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import new_name, upload

_PATIENT_S = 90.0


@case("a body that arrives slowly", slow=True)
def _(victim: Victim) -> Iterator[str]:
    yield from _trickle(victim, request(victim, "POST", LIST, "Content-Length: 1000"), b"x")


def _trickle(victim: Victim, begun: bytes, piece: bytes) -> list[str]:
    """Send a piece each second; return the answers."""
    with victim.connected() as connection:
        connection.sendall(begun)
        connection.settimeout(1.0)
        for _ in range(int(_PATIENT_S)):
            try:
                said = connection.recv(1 << 16)
                connection.settimeout(_PATIENT_S)
                return answers(said + read_all(connection))
            except TimeoutError:
                connection.sendall(piece)
    return []


@case("500 silent connections", slow=True)
def _(victim: Victim) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(victim.connected()) for _ in range(500)]
        with victim.client() as client:
            assert client.get(LIST).status_code == 200, "others are not answered meanwhile"
        for connection in idle:
            yield from answers(read_all(connection))


@case("10,000 requests for a list, 500 at a time", slow=True)
def _(victim: Victim) -> Iterator[str]:
    secrets = [victim.new_key("read") for _ in range(20)]
    asked = [request(victim, "GET", f"{LIST}?limit=20", secret=secret) for secret in secrets]
    asked = [one.replace(b"Connection: close\r\n", b"") for one in asked]

    async def ask(number: int) -> Counter[str]:
        found: Counter[str] = Counter()
        reader, writer = await asyncio.open_connection(*victim.address)
        for _ in range(20):
            writer.write(asked[number % len(asked)])
            said = await reader.readuntil(b"\r\n\r\n")
            length = int(said.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            found.update(answers(said + await reader.readexactly(length)))
        writer.close()
        return found

    async def ask_all() -> Counter[str]:
        return sum(await asyncio.gather(*(ask(number) for number in range(500))), Counter())

    found = asyncio.run(ask_all())
    assert found.total() == 10_000
    yield from found


@case("200 uploads at once", slow=True)
def _(victim: Victim) -> Iterator[str]:
    def send(name: str) -> str:
        with victim.client() as client:  # of its own: a shared one may close a connection that another thread reads
            return answer(upload(client, name))

    with ThreadPoolExecutor(100) as threads:
        yield from set(threads.map(send, [new_name() for _ in range(200)]))


@case("an upload to a full disk")
def _(victim: Victim) -> Iterator[str]:
    with victim.client() as client:
        id = upload(client, new_name()).json()["id"]
        with _without_room(victim):
            deadline = time.monotonic() + _PATIENT_S
            while (refused := answer(upload(client, new_name()))) == "201" and time.monotonic() < deadline:
                time.sleep(0.1)
            yield refused
            assert client.get(f"{LIST}/{id}/source").status_code == 200, "what is there cannot be read"
        while upload(client, new_name()).status_code != 201:
            assert time.monotonic() < deadline, "there is no room afterwards either"
            time.sleep(0.1)


@contextlib.contextmanager
def _without_room(victim: Victim) -> Iterator[None]:
    """The server's files, or its database's, cannot be written."""
    engine = victim.store.engine
    if engine.dialect.name == "sqlite":
        pid, limit = victim.process.pid, resource.RLIMIT_FSIZE
        before = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (0, before[1]))
        try:
            yield
        finally:
            resource.prlimit(pid, limit, before)
        return

    def set_read_only(value: str) -> None:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            connection.exec_driver_sql("SELECT pg_reload_conf()")

    set_read_only("on")
    try:
        yield
    finally:
        set_read_only("off")


@case("tries without end, ten at once", slow=True)
def _(victim: Victim) -> Iterator[str]:
    endless = b"def reward(completions, **kwargs):\n    while True: pass\n"
    with victim.client() as client, ThreadPoolExecutor(10) as threads:
        id = upload(client, new_name(), endless).json()["id"]
        body = {"rows": [{"completions": ["a"]}]}
        tries = [threads.submit(client.post, f"{LIST}/{id}/try", json=body) for _ in range(10)]
        with victim.client() as other:
            assert other.get(LIST).status_code == 200, "others are not answered meanwhile"
        yield from {answer(one.result()) for one in tries}
