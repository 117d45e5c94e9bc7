"""Several `Processes` in one, each in a thread, over JAX's own coordination service."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pytest

from agent_tunix.distributed import Processes
from agent_tunix.distributed.store import ValueStore
from tests.training.process_runs import free_port


class Together(Protocol):
    """Has so many processes do the same; what each returns, or raises."""

    def __call__(self, count: int, work: Callable[[Processes], Any]) -> list[Any]: ...


@pytest.fixture
def together() -> Iterator[Together]:
    from jax._src.lib import _jax  # type: ignore[attr-defined]

    running: list[Any] = []

    def run(count: int, work: Callable[[Processes], Any]) -> list[Any]:
        address = f"127.0.0.1:{free_port()}"
        service = _jax.get_distributed_runtime_service(address, count)
        clients = [_jax.get_distributed_runtime_client(address, index, init_timeout=60) for index in range(count)]
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda client: client.connect(), clients))
            running.append((service, clients))
            barrier = threading.Barrier(count)

            def take_part(index: int) -> Any:
                barrier.wait()
                try:
                    return work(Processes(index, count, ValueStore(clients[index])))
                except Exception as error:
                    return error

            return list(pool.map(take_part, range(count)))

    yield run
    for service, clients in running:
        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(lambda client: client.shutdown(), clients))
        service.shutdown()
