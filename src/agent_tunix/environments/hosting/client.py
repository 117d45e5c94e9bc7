"""The host's side of an environment in worker processes.

An episode stays in one worker, which does one thing at a time. Threads may use the episodes of different workers at the
same time. A request that takes too long kills its worker, and with it every episode there. The next episode gets a new
worker.
"""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, EpisodeSource
from agent_tunix.environments.hosting.program import EnvironmentProgram
from agent_tunix.environments.hosting.requests import Read, RemoteEpisode
from agent_tunix.environments.resolve import EnvironmentRecipe
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.execution.workers import linux
from agent_tunix.execution.workers.limits import WorkerLimits
from agent_tunix.execution.workers.pool import WorkerPool, WorkersFailedError
from agent_tunix.execution.workers.worker import Worker, WorkerDiedError

_START_S = 60.0


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
        limits = WorkerLimits(memory_mb * 2**20, 2**31, linux.most_processes())
        self._pool = WorkerPool(EnvironmentProgram, "environment worker", limits)
        self._numbers = itertools.count()
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
            if slot.worker is not None and not slot.worker.is_alive:
                slot.worker.close()
                slot.worker = None
            worker = slot.worker = slot.worker or self._new_worker()
        limit = worker.ask("the constructor", self._timeout_s, "open", number)
        traits = replace(self._traits, max_turns=limit if isinstance(limit, int) else None)
        return HostedEpisode(worker, number, traits, self._timeout_s)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.close()

    def _new_worker(self) -> "_Worker":
        try:
            worker = _Worker(self._pool.start())
        except (WorkerDiedError, WorkersFailedError) as error:
            raise EnvironmentFailedError(str(error), code="worker_died") from error
        try:
            worker.ask("loading the environment", _START_S, "build", self._recipe)
        except BaseException:
            worker.close()
            raise
        self._pool.forgive()
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
            raise self._worker.refuse(what, error) from error


class _Worker:
    """A worker process that threads ask in turns."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._turn = threading.Lock()
        self._how = ""  # how it ended

    @property
    def is_alive(self) -> bool:
        """True if it can be asked."""
        return not self._how and self._worker.is_alive

    def ask(self, what: str, limit_s: float, *request: Any) -> Any:
        """Return the reply to a request. The time of other requests to the worker does not count.

        Raises:
            EnvironmentFailedError: The user's code failed, took longer than `limit_s`, or ended the process.
        """
        with self._turn:
            if self._how:
                raise EnvironmentFailedError(
                    f"the worker of the environment is gone: it {self._how}", code="worker_died"
                )
            try:
                self._worker.send(request)
                reply = self._worker.receive(limit_s)
            except WorkerDiedError as death:
                self._how = f"was killed after {limit_s:g} s" if death.timed_out else death.how
                if death.timed_out:
                    raise EnvironmentFailedError(
                        f"{what} took longer than {limit_s:g} s", code="environment_timeout"
                    ) from death
                raise EnvironmentFailedError(f"{what} ended its process: it {death.how}", code="worker_died") from death
        match reply:
            case ("ok", value):
                return value
            case ("fault", message, code):
                raise EnvironmentFailedError(str(message), code=str(code))
        raise self.refuse(what, reply)

    def refuse(self, what: str, reply: object) -> EnvironmentFailedError:
        """End the worker, which sent something other than a reply, and return the error."""
        with self._turn:
            self._how = self._worker.refuse(reply).how
        return EnvironmentFailedError(f"the worker {self._how}: {what}", code="worker_died")

    def close(self) -> None:
        """Kill the worker, unless it has ended."""
        with self._turn:
            self._how = self._how or "was closed"
            self._worker.close()
