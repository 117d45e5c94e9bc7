"""A server for all tests of a file."""

from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.service import ServiceSettings, TryLimits
from agent_tunix.store import open_store
from tests.service.support import Server, running
from tests.store.conftest import postgresql

__all__ = ["client", "postgresql", "server"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server on SQLite."""
    file = tmp_path_factory.mktemp("store") / "store.db"
    settings = ServiceSettings(tries=TryLimits(timeout_s=60, total_timeout_s=300))  # a busy machine is slow
    with open_store(f"sqlite:///{file}") as store, running(store, settings) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """A client with Alice's key."""
    with server.client() as client:
        yield client
