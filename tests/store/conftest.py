"""Every test of the store runs on SQLite and on PostgreSQL."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.store import Key, open_store
from agent_tunix.store.opening import Store
from tests.postgresql import Unavailable, running_postgresql

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a running server."""
    try:
        server = running_postgresql()
        url = server.__enter__()
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started: {error}")
    yield url
    server.__exit__(None, None, None)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    return empty_database(request, tmp_path)


def empty_database(request: pytest.FixtureRequest, directory: Path) -> str:
    """The URL of an empty database of the kind that a fixture's parameter says."""
    if request.param == "sqlite":
        return f"sqlite:///{directory / 'store.db'}"
    import psycopg

    server: str = request.getfixturevalue("postgresql")
    name = f"store_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store."""
    with open_store(url) as store:
        yield store


@pytest.fixture
def alice(store: Store) -> Key:
    """One who may do anything in it."""
    return store.keys.create("alice")[0]
