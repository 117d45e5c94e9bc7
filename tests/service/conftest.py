"""A server for all tests of a file."""

from collections.abc import Iterator

import httpx
import pytest

from agent_tunix.service import ServiceSettings, TryLimits
from tests.service.support import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = ServiceSettings(tries=TryLimits(timeout_s=60, total_timeout_s=300))  # a busy machine is slow
    with serving(tmp_path_factory.mktemp("store"), settings) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client
