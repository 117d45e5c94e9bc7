"""A PostgreSQL server that stops answering: every call ends, and the store works again afterwards."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from agent_tunix.errors import StoreError
from agent_tunix.store import bounded, open_store
from agent_tunix.store.opening import Store
from tests.postgresql import Unavailable, running_postgresql
from tests.raising import raises
from tests.service.support import running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        running = running_postgresql()
        url = running.__enter__()
    except Unavailable as error:
        pytest.skip(f"PostgreSQL cannot be started: {error}")
    yield url
    running.__exit__(None, None, None)


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(bounded.BoundedConnection, "limit_s", 1.0)
    monkeypatch.setattr(bounded, "STATEMENT_TIMEOUT_S", 1.5)
    with open_store(server) as store:
        yield store


def backends(server: str) -> list[int]:
    with psycopg.connect(server, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
    return [pid for (pid,) in rows]


def postmaster(server: str) -> int:
    with psycopg.connect(server, autocommit=True) as connection:
        row = connection.execute("SELECT setting FROM pg_settings WHERE name = 'data_directory'").fetchone()
    assert row is not None
    with open(f"{row[0]}/postmaster.pid") as file:
        return int(file.readline())


def test_a_frozen_connection_is_replaced(store: Store, server: str) -> None:
    store.keys.create("bob")
    frozen = backends(server)
    assert frozen
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert [key.name for key in store.keys.list()] == ["bob"]
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


def test_a_statement_that_is_frozen_is_an_error_and_the_next_call_works(store: Store, server: str) -> None:
    from sqlalchemy import text

    from agent_tunix.store.database import reading

    with raises(StoreError, "store_failed") as caught, reading(store.engine) as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        os.kill(pid, signal.SIGSTOP)
        try:
            connection.execute(text("SELECT 1"))
        finally:
            os.kill(pid, signal.SIGCONT)
    assert "did not answer within 1 s" in str(caught.value)
    assert store.keys.list() is not None


def test_a_slow_statement_is_ended_by_the_server(store: Store) -> None:
    from sqlalchemy import text

    from agent_tunix.store.database import reading

    with raises(StoreError, "store_failed") as caught, reading(store.engine) as connection:
        connection.execute(text("SELECT pg_sleep(60)"))
    assert "statement timeout" in str(caught.value)


def test_a_server_that_is_frozen_whole_is_an_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_tunix.store.database.CONNECT_TIMEOUT_S", 2)
    monkeypatch.setattr(bounded.BoundedConnection, "limit_s", 1.0)
    with open_store(server) as store:
        store.keys.list()
        pids = [*backends(server), postmaster(server)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with raises(StoreError, "store_failed"):
                store.keys.list()
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        assert store.keys.list() is not None


def test_the_service_answers_503_while_the_server_is_frozen(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_tunix.store.database.CONNECT_TIMEOUT_S", 2)
    monkeypatch.setattr("agent_tunix.service.threads.READ_TIMEOUT_S", 2.0)
    monkeypatch.setattr(bounded.BoundedConnection, "limit_s", 1.0)
    with open_store(server) as store, running(store) as service, service.client() as client:
        assert client.get("/v1/reward_functions").status_code == 200
        pids = [*backends(server), postmaster(server)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(30) as pool:
                answers = list(pool.map(lambda _: client.get("/v1/reward_functions"), range(30)))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        assert {answer.status_code for answer in answers} == {503}
        assert {answer.json()["error"]["code"] for answer in answers} == {"store_unavailable"}
        assert client.get("/v1/reward_functions").status_code == 200
