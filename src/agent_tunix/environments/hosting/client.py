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
        limits = WorkerLimits(memory_mb * 2**20, 2**31)
        self._pool = WorkerPool(EnvironmentProgram, "environment worker", limits)
        self._numbers = itertools.count()
        self._workers: list[Worker | None] = [None] * num_workers
        self._locks = [threading.Lock() for _ in range(num_workers)]

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        return self._traits

    def open(self) -> EpisodeEnvironment:
        """Return the environment of a new episode, in a running worker or a new one."""
        number = next(self._numbers)
        place = number % len(self._workers)
        with self._locks[place]:
            worker = self._workers[place]
            if worker is None or not worker.is_alive:
                if worker is not None:
                    worker.close()
                worker = self._workers[place] = self._new_worker()
        limit = _ask(worker, "the constructor", self._timeout_s, "open", number)
        traits = replace(self._traits, max_turns=limit if isinstance(limit, int) else None)
        return HostedEpisode(worker, number, traits, self._timeout_s)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()
        for worker in self._workers:
            if worker is not None:
                worker.close()

    def _new_worker(self) -> Worker:
        try:
            worker = self._pool.start()
        except (WorkerDiedError, WorkersFailedError) as error:
            raise EnvironmentFailedError(str(error), code="worker_died") from error
        try:
            _ask(worker, "loading the environment", _START_S, "build", self._recipe)
        except BaseException:
            worker.close()
            raise
        self._pool.forgive()
        return worker


class HostedEpisode(RemoteEpisode):
    """An episode in a worker process."""

    def __init__(self, worker: Worker, number: int, traits: EnvironmentTraits, timeout_s: float) -> None:
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
        value = _ask(self._worker, what, self._timeout_s, method, self._number, *arguments)
        try:
            return read(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise _refused(self._worker, what, error) from error


def _ask(worker: Worker, what: str, limit_s: float, *request: Any) -> Any:
    """Return a worker's reply to a request.

    Raises:
        EnvironmentFailedError: The user's code failed, took longer than `limit_s`, or ended the process.
    """
    try:
        reply = worker.ask(request, limit_s)
    except WorkerDiedError as death:
        if death.timed_out:
            raise EnvironmentFailedError(
                f"{what} took longer than {limit_s:g} s", code="environment_timeout"
            ) from death
        if death.earlier:  # during a request of another episode
            message = f"the worker of the environment {death.how}; {what} was not called"
            raise EnvironmentFailedError(message, code="worker_died") from death
        raise EnvironmentFailedError(f"{what} ended its process: it {death.how}", code="worker_died") from death
    match reply:
        case ("ok", value):
            return value
        case ("fault", message, code):
            raise EnvironmentFailedError(str(message), code=str(code))
    raise _refused(worker, what, reply)


def _refused(worker: Worker, what: str, reply: object) -> EnvironmentFailedError:
    """End a worker that sent something other than a reply, and return the error."""
    return EnvironmentFailedError(f"the worker {worker.refuse(reply).how}: {what}", code="worker_died")
