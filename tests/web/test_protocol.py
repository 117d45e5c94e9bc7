"""One connection of the server, on a loop whose time the test sets: headers that do not come are not waited for."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from agent_tunix.web.protocol import LimitedProtocol, limited

TIMEOUT_S = 10.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock that stands still until a test moves it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock, and run all that is due."""
        self.now += seconds
        for _ in range(5):
            self.run_until_complete(asyncio.sleep(0))


class Connection(asyncio.Transport):
    """The server's end of a connection, which keeps what is written."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        super().__init__()
        self.said = b""
        self.is_over = False
        self.protocol = protocol
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def answer_s() -> float:
    return 0.0


@pytest.fixture
def connection(loop: Loop, answer_s: float) -> Connection:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(answer_s)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, timeout_keep_alive=100)
    return Connection(limited(TIMEOUT_S, 1)(config, ServerState(), {}, loop))


@pytest.mark.parametrize("sent", [[], [b"GET / HTTP/1.1\r\nHost: "]])
def test_headers_that_do_not_come_end_the_connection(loop: Loop, connection: Connection, sent: list[bytes]) -> None:
    for data in sent:
        connection.protocol.data_received(data)
    loop.advance(TIMEOUT_S - 0.1)
    assert (connection.said, connection.is_over) == (b"", False)
    loop.advance(0.1)
    assert b'"header_timeout"' in connection.said
    assert connection.is_over


def test_headers_that_trickle_get_no_more_time(loop: Loop, connection: Connection) -> None:
    connection.protocol.data_received(b"GET / HTTP/1.1\r\n")
    for _ in range(10):
        loop.advance(TIMEOUT_S / 10)
        connection.protocol.data_received(b"X: y\r\n")
    assert b'"header_timeout"' in connection.said


@pytest.mark.parametrize("together", [True, False])
def test_headers_of_a_further_request_have_a_time_of_their_own(
    loop: Loop, connection: Connection, together: bool
) -> None:
    further = b"GET / HT"
    loop.advance(TIMEOUT_S / 2)
    connection.protocol.data_received(REQUEST + further * together)
    loop.advance(0)
    assert connection.said.startswith(b"HTTP/1.1 200 ")
    if not together:
        loop.advance(TIMEOUT_S)
        connection.protocol.data_received(further)
    loop.advance(TIMEOUT_S - 0.1)
    assert b'"header_timeout"' not in connection.said
    loop.advance(0.1)
    assert b'"header_timeout"' in connection.said


@pytest.mark.parametrize("answer_s", [3 * TIMEOUT_S])
def test_an_answer_may_take_longer_than_the_headers(loop: Loop, connection: Connection) -> None:
    connection.protocol.data_received(REQUEST)
    loop.advance(0)
    loop.advance(2 * TIMEOUT_S)
    assert (connection.said, connection.is_over) == (b"", False)
    loop.advance(TIMEOUT_S)
    assert connection.said.startswith(b"HTTP/1.1 200 ")
