"""A server on SQLite and on PostgreSQL, for all tests of a file."""

from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.store import open_store
from tests.service.support import Server, running
from tests.store.conftest import empty_database, postgresql

__all__ = ["client", "postgresql", "server"]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    with open_store(empty_database(request, tmp_path_factory.mktemp("store"))) as store, running(store) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """Alice's."""
    with server.client() as client:
        yield client
