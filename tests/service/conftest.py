"""A server for all tests of a file: on SQLite, and in the slow tier on PostgreSQL."""

from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.store import open_store
from tests.service.support import Server, running
from tests.store.conftest import DATABASES, empty_database, postgresql

__all__ = ["client", "postgresql", "server"]


@pytest.fixture(scope="module", params=DATABASES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    with open_store(empty_database(request, tmp_path_factory.mktemp("store"))) as store, running(store) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client with Alice's key."""
    with server.client() as client:
        yield client
