"""The host's side of an environment in worker processes.

An episode stays in one worker, which does one thing at a time. Threads may use the episodes of different workers at the
same time. A request that takes too long kills its worker, and with it every episode there. The next episode gets a new
worker.
"""

import itertools
import logging
import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, EpisodeSource
from agent_tunix.environments.hosting import program
from agent_tunix.environments.hosting.requests import Read, RemoteEpisode
from agent_tunix.environments.resolve import EnvironmentRecipe
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.execution.workers import linux
from agent_tunix.execution.workers.connection import Connection, call_handlers
from agent_tunix.execution.workers.frames import BrokenFrameError, FrameReader
from agent_tunix.execution.workers.limits import WorkerLimits
from agent_tunix.execution.workers.nursery_client import NurseryClient
from agent_tunix.execution.workers.output import OutputLimit, OutputLog

logger = logging.getLogger("agent_tunix.environments")

_START_S = 60.0
# Time for a worker whose connection closed to report how it ended.
_FAREWELL_S = 2.0
_FOREIGN_REPLY = "wrote to its connection with the host"


class HostedEnvironment(EpisodeSource):
    """An environment whose episodes run in worker processes.

    Args:
        recipe: Recipe of the environment.
        traits: Its traits.
        timeout_s: Wall time that one call of the user's code may take.
        memory_mb: Memory that a worker may allocate beyond what it holds after loading the environment.
        num_workers: Number of worker processes. Episodes take turns among them.
    """

    def __init__(
        self,
        recipe: EnvironmentRecipe,
        traits: EnvironmentTraits,
        *,
        timeout_s: float = 10.0,
        memory_mb: int = 2048,
        num_workers: int = 1,
    ) -> None:
        self.concurrency = num_workers
        self._recipe = recipe
        self._traits = traits
        self._timeout_s = timeout_s
        self._limits = WorkerLimits(memory_mb * 2**20, 2**31, linux.most_processes())
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._nursery: _Nursery | None = None
        self._slots = [_Slot() for _ in range(num_workers)]

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        return self._traits

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode, in a running worker or a new one."""
        number = next(self._numbers)
        slot = self._slots[number % len(self._slots)]
        with slot.lock:
            if slot.worker is None or not slot.worker.is_alive:
                slot.worker = self._new_worker()
            worker = slot.worker
        limit = worker.ask("the constructor", self._timeout_s, "open", number)
        traits = replace(self._traits, max_turns=limit if isinstance(limit, int) else None)
        return HostedEpisode(worker, number, traits, self._timeout_s)

    def close(self) -> None:
        """End the workers."""
        with self._lock:
            nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.close()

    def _new_worker(self) -> "_Worker":
        with self._lock:
            if self._nursery is not None and not self._nursery.is_alive:
                self._nursery.close()
                self._nursery = None
            if self._nursery is None:
                self._nursery = _Nursery(self._limits)
            worker = self._nursery.spawn()
        try:
            worker.ask("loading the environment", _START_S, "build", self._recipe)
        except BaseException:
            worker.discard()
            raise
        return worker


class _Slot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: _Worker | None = None


class HostedEpisode(RemoteEpisode):
    """An episode in a worker process."""

    def __init__(self, worker: "_Worker", number: int, traits: EnvironmentTraits, timeout_s: float) -> None:
        super().__init__(traits)
        self._worker = worker
        self._number = number
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Release the episode, unless its worker is dead."""
        if self._worker.is_alive:
            super().close()

    def ask(self, what: str, read: Callable[[Any], Read], method: str, *arguments: Any) -> Read:
        """Return the worker's answer."""
        value = self._worker.ask(what, self._timeout_s, method, self._number, *arguments)
        try:
            return read(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise self._worker.refuse(f"{what}: {type(error).__name__}: {error}") from error


class _Nursery:
    """The process that forks workers, and the workers by number. A new worker takes a few milliseconds.

    Its own thread waits for messages of workers. All other access holds `changed`, which is notified of them.
    """

    def __init__(self, limits: WorkerLimits) -> None:
        self.changed = threading.Condition()
        self.is_alive = True
        self._selector = selectors.DefaultSelector()
        self._numbers = itertools.count()
        self._workers: dict[int, _Worker] = {}
        self._output_limit = OutputLimit("environment workers")
        self._client = NurseryClient(program.__name__, limits, None, self._selector, self._hear, self._output_limit)
        self._is_closing = False
        self._wake, self._woken = os.pipe()[::-1]
        self._selector.register(self._woken, selectors.EVENT_READ, lambda _: None)
        self._thread = threading.Thread(target=self._attend, name="environments", daemon=True)
        self._thread.start()

    def spawn(self) -> "_Worker":
        """Return a new worker."""
        with self.changed:
            number = next(self._numbers)
            log = OutputLog("environment worker", self._output_limit)
            worker = self._workers[number] = _Worker(self, number, log, self._selector)
            self._client.spawn(number, worker.connection.remote_ends)
            worker.connection.hand_over()
            return worker

    def kill(self, number: int) -> None:
        """Kill a worker and everything that it started. The caller holds `changed`."""
        self._workers.pop(number, None)
        self._client.kill(number)

    def close(self) -> None:
        """End all workers and the process itself."""
        with self.changed:
            self._is_closing = True
            os.write(self._wake, b"x")
        self._thread.join()
        with self.changed:
            for worker in list(self._workers.values()):
                worker.end()
            self.is_alive = False
            self._client.close()
            self._output_limit.tell_omitted()
            self._selector.close()
            os.close(self._wake)
            os.close(self._woken)
            self.changed.notify_all()

    def _attend(self) -> None:
        try:
            while self.is_alive:
                ready = self._selector.select()
                with self.changed:
                    if self._is_closing:
                        return
                    call_handlers(self._selector, ready)
                    self.changed.notify_all()
        except BaseException:  # a defect of this package must not keep callers waiting
            logger.exception("the host of environments failed")
            with self.changed:
                self._lose_workers("was lost by its host")
                self.changed.notify_all()

    def _lose_workers(self, how: str) -> None:
        self.is_alive = False
        for worker in self._workers.values():
            worker.has_ended(how)

    def _hear(self) -> None:
        ended = self._client.hear()
        if ended is None:
            self._lose_workers("was killed with its supervisor")
        elif (ended_worker := self._workers.get(ended.number)) is not None:
            ended_worker.has_ended(ended.how)


class _Worker:
    """One worker process, asked one thing at a time."""

    def __init__(self, nursery: _Nursery, number: int, log: OutputLog, selector: selectors.BaseSelector) -> None:
        self._nursery = nursery
        self._number = number
        self._turn = threading.Lock()
        self._replies: list[tuple[Any, ...]] = []
        self._how = ""
        self.connection = Connection(log, selector, self._listen, FrameReader())
        self.is_alive = True

    def ask(self, what: str, limit_s: float, *request: Any) -> Any:
        """Return the reply to a request. The time of other requests to the worker does not count.

        Raises:
            EnvironmentFailedError: The user's code failed, took longer than `limit_s`, or ended the process.
        """
        with self._turn, self._nursery.changed:
            return self._ask(what, limit_s, request)

    def _ask(self, what: str, limit_s: float, request: tuple[Any, ...]) -> Any:
        if self._replies and self.is_alive:  # a reply without a request
            raise self.refuse(what)
        if not self.is_alive:
            raise EnvironmentFailedError(f"the worker of the environment is gone: it {self._how}", code="worker_died")
        wait_for = self._nursery.changed.wait_for
        self.connection.send(request)
        if not wait_for(lambda: self._replies or self._how or not self.connection.is_open, limit_s):
            self._how = f"was killed after {limit_s:g} s"
            self.end()
            raise EnvironmentFailedError(f"{what} took longer than {limit_s:g} s", code="environment_timeout")
        if not self._replies:
            # It has ended, and the nursery will report how.
            wait_for(lambda: self._replies or self._how, _FAREWELL_S)
        if not self._replies:
            self._how = self._how or "closed its connection"
            self.end()
            raise EnvironmentFailedError(f"{what} ended its process: it {self._how}", code="worker_died")
        match self._replies:
            case [("ok", value)]:
                self._replies.clear()
                return value
            case [("fault", message, code)]:
                self._replies.clear()
                raise EnvironmentFailedError(str(message), code=str(code))
        raise self.refuse(what)

    def refuse(self, what: str) -> EnvironmentFailedError:
        """End the worker, which sent something other than a reply, and return the error."""
        with self._nursery.changed:
            self._how = _FOREIGN_REPLY
            self.end()
        return EnvironmentFailedError(f"the worker {_FOREIGN_REPLY}: {what}", code="worker_died")

    def discard(self) -> None:
        """Kill the worker, which nobody asks any more."""
        with self._nursery.changed:
            self.end()

    def end(self) -> None:
        """Kill the worker. The caller holds the nursery's `changed`."""
        if self.is_alive:
            self.is_alive = False
            self._nursery.kill(self._number)
            self.connection.close()

    def has_ended(self, how: str) -> None:
        """Note the end of the process, after all that it wrote."""
        self._listen()
        self._how = self._how or how

    def _listen(self) -> None:
        try:
            self._replies += self.connection.replies()
        except BrokenFrameError as error:
            self._how = f"{_FOREIGN_REPLY} ({error})"
