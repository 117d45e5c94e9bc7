"""Execution of coroutines from synchronous code."""

import asyncio
import atexit
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

# Default limit on concurrent calls.
DEFAULT_LIMIT = 64


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end.

    All calls on the main thread share one event loop, because a client or semaphore that a user's module keeps between
    batches belongs to the loop in which it was first used.
    """
    if _has_running_loop():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(coroutine)
    try:
        return _main_runner().run(coroutine)
    except (KeyboardInterrupt, SystemExit):
        _close()  # interrupted work must not continue in the next batch
        raise


async def awaited(returned: Any) -> Any:
    """Return a result, awaited if needed. A wrapper of an async function may have awaited it already."""
    return await returned if inspect.isawaitable(returned) else returned


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_runner: asyncio.Runner | None = None


def _main_runner() -> asyncio.Runner:
    global _runner
    if _runner is None:
        _runner = asyncio.Runner()
    return _runner


def _close() -> None:
    global _runner
    if _runner is not None:
        runner, _runner = _runner, None
        runner.close()


atexit.register(_close)
