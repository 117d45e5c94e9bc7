from collections.abc import Iterator

import pytest

from tests.rewards.judges.endpoint_server import Answer, EndpointServer, chat


@pytest.fixture(scope="module")
def server() -> Iterator[EndpointServer]:
    """A policy that says 5 to everything."""
    server = EndpointServer()
    server.always = lambda request: Answer(body=chat("5"))
    yield server
    server.close()
