"""A server on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.store.opening import Store
from tests.service.support import Server, running
from tests.store.conftest import postgresql, store, url

__all__ = ["client", "postgresql", "server", "store", "url"]


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    """A running server with an empty store."""
    with running(store) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """Alice's."""
    with server.client() as client:
        yield client
