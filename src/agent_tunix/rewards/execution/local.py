"""Worker processes on this machine, managed by one thread.

All state belongs to that thread, which runs a `Supervisor`. Other threads wake it with commands, and get futures.
Workers for uploaded code, and for built-ins whose library may run a model's text, are isolated. Where isolation is
impossible, they are plain workers if the user allows it.
"""

import collections
import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from agent_tunix.closing import Closing
from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.execution.isolation.requirements import REMEDY_FOR_UPLOADS, problems, require_isolation
from agent_tunix.execution.workers.connection import call_handlers
from agent_tunix.rewards.execution.calls import Job
from agent_tunix.rewards.execution.settings import ExecutionSettings
from agent_tunix.rewards.execution.supervision import Supervisor
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Score

logger = logging.getLogger("agent_tunix.rewards")


class LocalExecutor(Closing):
    """Executor of jobs in worker processes of this machine."""

    def __init__(self, settings: ExecutionSettings) -> None:
        self._commands: collections.deque[Callable[[], None]] = collections.deque()
        self._lock = threading.Lock()
        self._closing = False
        self._fault: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._drain_wakeup)
        self._supervisor = Supervisor(settings, self._selector)
        self._thread = threading.Thread(target=self._run, name="reward-workers", daemon=True)
        self._thread.start()

    def prepare(self, recipe: RewardRecipe) -> None:
        """Start the workers and load a reward in each."""
        self._command(lambda: self._supervisor.prepare(recipe))

    def submit(self, job: Job) -> "Future[list[Score]]":
        """Begin a job."""
        future: Future[list[Score]] = Future()
        if job.samples:
            self._command(lambda: self._supervisor.begin(job, future))
        else:
            future.set_result([])
        return future

    def close(self) -> None:
        """End the workers and the thread."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake()
        self._thread.join()
        self._wakeup.close()
        self._waker.close()

    def _command(self, command: Callable[[], None]) -> None:
        with self._lock:
            if isinstance(self._fault, SandboxUnavailableError):
                raise self._fault
            if self._closing or self._fault is not None:
                raise RewardError("the reward workers are closed", code="workers_closed") from self._fault
            self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"!")

    def _drain_wakeup(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def _run(self) -> None:
        try:
            while not self._closing:
                call_handlers(self._selector, self._selector.select(self._supervisor.patience_s()))
                while self._commands:
                    self._commands.popleft()()
                self._supervisor.supervise()
        except SandboxUnavailableError as fault:  # no worker ran anything
            with self._lock:
                self._fault = fault
        except BaseException as fault:  # a defect of this package must not leave a caller waiting
            with self._lock:
                self._fault = fault
            logger.exception("the reward workers failed")
        finally:
            # Commands that arrived during shutdown still run, so that the futures of their jobs end too.
            while self._commands:
                with contextlib.suppress(Exception):
                    self._commands.popleft()()
            self._supervisor.end(self._fault)
            self._selector.close()


def make_sandboxed_executor(settings: ExecutionSettings, what: str = "uploaded code") -> LocalExecutor:
    """Start workers for one upload or built-in and no other, whatever `settings.execution` says.

    Args:
        settings: Limits of the workers.
        what: The code to run, for messages.

    Raises:
        SandboxUnavailableError: Workers cannot be isolated here, and `settings` does not allow them to run otherwise.
    """
    if settings.allow_unsandboxed and (found := problems()):
        logger.warning(
            "%s runs with all permissions of this user, as allowed, because this machine cannot isolate it (%s)",
            what,
            "; ".join(found),
        )
        return LocalExecutor(replace(settings, execution="process", sandboxed=False))
    require_isolation(what, REMEDY_FOR_UPLOADS)
    return LocalExecutor(replace(settings, execution="process", sandboxed=True))
