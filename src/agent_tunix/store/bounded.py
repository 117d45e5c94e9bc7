"""Connections to PostgreSQL on which no statement waits for ever.

The server's own `statement_timeout` ends a slow statement, but not that of a server that is frozen or cut off: its
machine may still confirm every packet. So the client watches the time too, and gives the connection up.
"""

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, event, text

# Longest wait for the result of a statement. Statements of the store take milliseconds.
STATEMENT_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0
# The server answers a little earlier than the client gives up, so that the connection can be kept.
_EARLIER_S = 1.0


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not answer within a limit."""

    limit_s = STATEMENT_TIMEOUT_S

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Run a generator of the driver, which waits for the server."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.limit_s
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server did not answer within {self.limit_s:g} s")
                # The driver expects no new wish after a wait in which nothing happened.
                wanted = gen.send(ready) or wanted
        except StopIteration as end:
            return end.value


def bound(engine: Engine) -> None:
    """Make all new connections of an engine bounded."""

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: object, _record: object, args: list[Any], settings: dict[str, Any]) -> BoundedConnection:
        connection = BoundedConnection.connect(*args, **settings)
        try:
            limit_ms = 1000 * (STATEMENT_TIMEOUT_S - _EARLIER_S)
            connection.execute(f"SET statement_timeout = {limit_ms:.0f}")
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def migrating(connection: Connection) -> Iterator[None]:
    """Give the statements of a transaction the time that a change of large tables takes."""
    bounded: Any = connection.connection.dbapi_connection
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    bounded.limit_s = MIGRATION_TIMEOUT_S
    try:
        yield
    finally:
        bounded.limit_s = BoundedConnection.limit_s
