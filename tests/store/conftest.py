"""Databases for the tests of the store: SQLite, and in the slow tier PostgreSQL."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.store import Key, open_store
from agent_tunix.store.opening import Store
from tests.postgresql import Unavailable, running_postgresql

_numbers = itertools.count()

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    try:
        server = running_postgresql()
        url = server.__enter__()
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started: {error}")
    yield url
    server.__exit__(None, None, None)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_database(request, tmp_path)


def empty_database(request: pytest.FixtureRequest, directory: Path) -> str:
    """Return the URL of an empty database of the kind in the fixture's parameter."""
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
    with open_store(url) as store:
        yield store


@pytest.fixture
def alice(store: Store) -> Key:
    return store.keys.create("alice")[0]
