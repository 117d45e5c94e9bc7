import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.service.threads import StoreCalls, WorkThreads
from agent_tunix.store import open_store
from agent_tunix.store.opening import Store
from agent_tunix.web.problems import Problem


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        yield store


def test_reads_of_a_database_that_does_not_answer_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_tunix.service.threads.READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(store.engine.dialect, "name", "postgresql")  # a database that may be slow is read in threads
    is_over = threading.Event()

    async def read() -> list[BaseException | bool]:
        calls = StoreCalls(store)
        try:
            waiting = (calls.read(is_over.wait, 600) for _ in range(20))
            return await asyncio.gather(*waiting, return_exceptions=True)
        finally:
            is_over.set()
            calls.close()

    for refused in asyncio.run(read()):
        assert isinstance(refused, Problem)
        assert (refused.status, refused.code) == (503, "store_unavailable")


def test_a_cancelled_call_keeps_its_place_until_its_thread_ends() -> None:
    began, is_over = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        is_over.wait(600)

    async def read() -> str:
        threads = WorkThreads("reads", 1, 1, "reads are queued")
        try:
            slow = asyncio.create_task(threads.run(wait))
            await asyncio.to_thread(began.wait)
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow
            with pytest.raises(Problem, match="busy"):
                await threads.run(str, 1)
            is_over.set()
            while True:
                with contextlib.suppress(Problem):
                    return await threads.run(str, 1)
                await asyncio.sleep(0)
        finally:
            is_over.set()
            threads.close()

    assert asyncio.run(read()) == "1"
