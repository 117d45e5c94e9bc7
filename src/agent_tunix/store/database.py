"""The store's database: SQLite in a file, or PostgreSQL by URL."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from agent_tunix.errors import StoreError
from agent_tunix.store.home import DATABASE_VARIABLE

# Longest wait of a writer for other writers, each of which holds the database for milliseconds.
BUSY_TIMEOUT_S = 30.0
# Longest wait for a connection, and for the result of a statement. Statements of the store take milliseconds.
CONNECT_TIMEOUT_S = 10
# Longest wait for one of the connections, all of which others are using.
POOL_TIMEOUT_S = 10.0


def read_url(text: str) -> URL:
    """Parse the URL of a database that can hold a store, and set its driver.

    Raises:
        StoreError: The text is not a URL of SQLite in a file or of PostgreSQL.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:  # its message may contain a password
        raise StoreError(f"{DATABASE_VARIABLE} must be the URL of a database, but is not; {_WANTED}") from error
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        return url.set(drivername="sqlite", database=str(Path(url.database).expanduser().absolute()))
    raise StoreError(f"{_shown(url)} cannot hold a store; {_WANTED}")


def _shown(url: URL) -> str:
    """Return a URL without its password and its query, which may hold one too."""
    return url.set(query={}).render_as_string()


_WANTED = "give sqlite:////absolute/file.db or postgresql://user:password@host/name"


def connect(url: URL) -> Engine:
    """Return an engine for the database; no connection is opened yet.

    Raises:
        StoreError: The driver is not installed.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return _connect_sqlite(url)
        engine = create_engine(
            url,
            pool_pre_ping=True,
            pool_timeout=POOL_TIMEOUT_S,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "tcp_user_timeout": 1000 * CONNECT_TIMEOUT_S},
        )
    except (ImportError, NoSuchModuleError) as error:
        raise StoreError(
            f"{error}; PostgreSQL requires psycopg: pip install 'agent_tunix[postgresql]'", code="missing_package"
        ) from error

    @event.listens_for(engine, "connect")
    def limit(connection: Any, _record: object) -> None:
        connection.execute(f"SET statement_timeout = {1000 * CONNECT_TIMEOUT_S}")
        connection.commit()

    return engine


def _connect_sqlite(url: URL) -> Engine:
    # Python's driver would begin transactions itself, too late, and never for table definitions; turn that off.
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None})

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer locks the database at once. If it read first and wrote later, the write could fail, because another
        # may have changed the data in between. A reader needs no transaction.
        if connection.get_execution_options().get("is_writing", False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def file_of(engine: Engine) -> Path | None:
    """Return the file of an SQLite database; None for PostgreSQL."""
    return Path(engine.url.database) if engine.dialect.name == "sqlite" and engine.url.database else None


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a connection for reading; each statement sees the store at that moment.

    Raises:
        StoreError: The database cannot be reached or read.
    """
    with _told(engine), engine.connect() as connection:
        if connection.dialect.name != "sqlite":  # a transaction would cost two more round trips to the server
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a connection for writing; all changes are committed at the end of the block, or none.

    Raises:
        StoreError: The database cannot be reached or written.
    """
    with _told(engine), engine.connect().execution_options(is_writing=True) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def _told(engine: Engine) -> Iterator[None]:
    """Turn database errors into a StoreError that names the remedy."""
    try:
        yield
    except (DBAPIError, PoolTimeoutError) as error:
        cause = str(getattr(error, "orig", None) or error).strip()
        raise StoreError(
            f"the store at {_shown(engine.url)} could not be used: {cause}; check that the database "
            f"exists, is writable and has free space, or set another in {DATABASE_VARIABLE}"
        ) from error


def insert_missing(connection: Connection, table: Table, by: str, **values: Any) -> bool:
    """Insert a row unless one with the same value in a unique column exists; that row is not changed.

    Returns:
        True if the row was inserted. If another transaction is inserting the same value, this waits for it to end.
    """
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing(index_elements=[by])
    return connection.execute(statement.returning(table.c[by])).first() is not None


def make_private(file: Path) -> None:
    """Create an empty file for its owner alone if it does not exist; SQLite gives its own files the same rights.

    Raises:
        StoreError: The file cannot be created.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise StoreError(
            f"the store cannot be created at {file} ({error}); set another in {DATABASE_VARIABLE}"
        ) from error
