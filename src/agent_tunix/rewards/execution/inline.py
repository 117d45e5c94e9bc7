"""Execution of rewards in this process: sync ones in the calling thread, async ones in the event loop of another."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from agent_tunix.closing import Closing
from agent_tunix.errors import RewardError
from agent_tunix.rewards.execution.calls import Call
from agent_tunix.rewards.execution.concurrent import AsyncReward, run_calls
from agent_tunix.rewards.sample import Sample, Score

logger = logging.getLogger("agent_tunix.rewards")

_CLOSE_S = 1.0


class EventLoopThread(Closing):
    """Thread with an event loop, started at first use and running until it is closed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._is_closed = False

    def score(
        self, reward: AsyncReward, samples: Sequence[Sample], calls: Sequence[Call], limit: int, timeout_s: float
    ) -> list[Score]:
        """Make calls concurrently; see `concurrent.run_calls`."""
        scores: dict[int, Score] = {}

        def record(number: int, scores_of_call: list[Score]) -> None:
            scores.update(zip(calls[number], scores_of_call, strict=True))

        samples_of_calls = [[samples[position] for position in call] for call in calls]
        work = run_calls(reward, samples_of_calls, limit, timeout_s, record)
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            future.result()
        except BaseException:
            future.cancel()
            raise
        return [scores[position] for position in range(len(samples))]

    def close(self) -> None:
        """Cancel running tasks and end the thread."""
        self._is_closed = True
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(2 * _CLOSE_S)
        self._stopping.set()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * _CLOSE_S)
        if not self._thread.is_alive():  # a living thread is blocked by a call, which cannot be ended
            self._loop.close()
        self._loop = self._thread = None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise RewardError("the event loop of the rewards is closed", code="workers_failed")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._run, args=(self._loop,), name="async-rewards", daemon=True)
            self._thread.start()
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stopping.is_set():
            try:
                loop.run_forever()
            except BaseException as error:  # a task stores KeyboardInterrupt and SystemExit and also raises them here
                logger.debug("a reward raised %r", error)


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_CLOSE_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
