"""The processes of a run meet at the coordinator's port, and nobody else gets in."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from agent_tunix.distributed import meeting
from agent_tunix.distributed.meeting import NobodyCameError, meet
from agent_tunix.errors import ConfigError
from tests.raising import raises
from tests.training.process_runs import free_port


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_ANSWER_S", 1.0)
    monkeypatch.setattr(meeting, "_PAUSE_S", 0.05)
    monkeypatch.setattr(meeting, "_STRANGER_S", 2.0)


@contextmanager
def meeting_of(count: int, address: str, *indices: int) -> Iterator[list[Future[None]]]:
    with ThreadPoolExecutor(max(1, len(indices))) as pool:
        yield [pool.submit(meet, address, index, count, 20.0) for index in indices]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_processes_meet_in_any_order(order: tuple[int, ...]) -> None:
    with meeting_of(3, f"127.0.0.1:{free_port()}", *order) as processes:
        assert [process.result() for process in processes] == [None] * 3


def test_a_process_that_came_again_takes_its_own_place() -> None:
    port = free_port()
    with meeting_of(3, f"127.0.0.1:{port}", 0) as (first,):
        while True:
            with ExitStack() as stack:
                try:
                    early = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                except ConnectionRefusedError:
                    continue
                early.sendall(b"agent_tunix process 1 abc\n")
                assert early.recv(64)
            break
        with meeting_of(3, f"127.0.0.1:{port}", 1, 2) as others:
            assert [other.result() for other in (first, *others)] == [None] * 3


def test_a_second_process_of_one_index_is_refused_and_the_first_run_goes_on() -> None:
    address = f"127.0.0.1:{free_port()}"
    with meeting_of(3, address, 0, 1, 1) as processes:
        refused = next(process for process in iter_done(processes))
        with raises(ConfigError, "processes_unreachable"):
            refused.result()
        meet(address, 2, 3, 20.0)
        assert sum(process.exception() is None for process in processes) == 2


def iter_done(processes: list[Future[None]]) -> Iterator[Future[None]]:
    done = threading.Event()
    for process in processes:
        process.add_done_callback(lambda _: done.set())
    done.wait(20)
    yield from (process for process in processes if process.done())


def test_a_process_of_another_run_leaves_its_place_to_the_right_one() -> None:
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(meet, address, 0, 2, 20.0, "ours")
        stranger = pool.submit(meet, address, 1, 2, 3.0, "another")
        meet(address, 1, 2, 20.0, "ours")
        assert first.result() is None
        assert isinstance(stranger.exception(), ConfigError | NobodyCameError)


def test_a_process_with_another_configuration_takes_part_if_the_right_one_does_not_come() -> None:
    address = f"127.0.0.1:{free_port()}"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(meet, address, 0, 2, 20.0, "ours")
        meet(address, 1, 2, 20.0, "another")
        assert first.result() is None


def test_a_scanner_of_ports_does_not_count() -> None:
    port = free_port()
    with meeting_of(2, f"127.0.0.1:{port}", 0) as (first,):
        with ExitStack() as stack:
            while True:
                try:
                    scanner = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    break
                except ConnectionRefusedError:
                    continue
            scanner.sendall(b"GET / HTTP/1.1\r\n\r\n")
            meet(f"127.0.0.1:{port}", 1, 2, 20.0)
        assert first.result() is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_process_0_names_a_port_that_is_taken(host: str) -> None:
    with closing(socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)) as other:
        port = other.getsockname()[1]
        with raises(ConfigError, "processes_unreachable") as caught:
            meet(f"127.0.0.1:{port}", 0, 2, 20.0)
    assert str(port) in str(caught.value)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", None])
def test_the_others_name_a_port_that_another_program_answers(answer: bytes | None) -> None:
    """An empty answer closes the connection; None never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]

        def serve() -> None:
            while answer is not None:
                try:
                    connection, _ = other.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with raises(ConfigError, "processes_unreachable") as caught:
            meet(f"127.0.0.1:{port}", 1, 2, 20.0)
        other.shutdown(socket.SHUT_RDWR)
    assert str(port) in str(caught.value)


@pytest.mark.slow
def test_the_service_of_a_complete_run_takes_nobody_in() -> None:
    from jax._src.lib import _jax  # type: ignore[attr-defined]

    address = f"127.0.0.1:{free_port()}"
    service = _jax.get_distributed_runtime_service(address, 1)
    client = _jax.get_distributed_runtime_client(address, 0, init_timeout=60)
    client.connect()
    for index in (0, 1):
        with raises(ConfigError, "processes_unreachable"):
            meet(address, index, 2, 20.0)
    client.key_value_set("still", "here")
    assert client.blocking_key_value_get("still", 1000) == "here"
    client.shutdown()
    service.shutdown()


@pytest.mark.parametrize("index", [0, 1])
def test_nobody_comes(index: int) -> None:
    with pytest.raises(NobodyCameError):
        meet(f"127.0.0.1:{free_port()}", index, 2, 0.2)
