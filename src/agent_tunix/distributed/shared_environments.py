"""Environments of a run of several processes: process 0 runs them, and the others repeat its answers.

All processes keep the same episodes, because every process samples all rows. A phase of the sampler uses each episode
once. Process 0 performs the phase and writes down every answer of an environment. The other processes then perform it
with these answers.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from agent_tunix.distributed.group import Processes
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment
from agent_tunix.environments.hosting import RemoteEpisode, answer_request
from agent_tunix.environments.hosting.requests import Read
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.rewards.faults import describe_fault

Item = TypeVar("Item")

# ("ok", value) or ("fault", message, code).
Answer = tuple[Any, ...]


class SharedEnvironments:
    """The environments of a run of several processes. It takes the place of an `EnvironmentSet` in the sampler.

    Args:
        environments: Environments, which only process 0 uses.
        processes: Processes of the run.
    """

    def __init__(self, environments: EnvironmentSet, processes: Processes) -> None:
        self._environments = environments
        self._processes = processes
        self._current = threading.local()

    def describe(self) -> str:
        """Return a line for each environment."""
        return self._environments.describe()

    def open(self, row: Mapping[str, Any]) -> EpisodeEnvironment:
        """Return the environment of a new episode of a row; see `EnvironmentSet.open`."""
        environments: list[EpisodeEnvironment] = []

        def open_here() -> tuple[Any, ...]:
            environments.append(self._environments.open(row))
            traits = environments[0].traits
            return traits.convention, traits.max_turns, traits.replies

        traits = EnvironmentTraits(*self._share(open_here))
        return _SharedEpisode(traits, environments[0] if environments else None, self._share)

    def for_each(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Call a function on each item in all processes, with the answers that environments give in process 0."""
        items = list(items)
        answers: list[list[Answer]] = [[] for _ in items]

        def perform() -> list[list[Answer]]:
            self._environments.for_each(
                lambda place: self._call(function, items[place], answers[place]), range(len(items))
            )
            return answers

        shared_answers = self._processes.from_first(perform)
        if not self._processes.is_first:
            for item, of_item in zip(items, shared_answers, strict=True):
                self._call(function, item, iter(of_item))

    def submit(self, function: Callable[[Item], None], item: Item) -> Future[None]:
        """Call a function on an episode at once, because several processes run in lockstep."""
        self.for_each(function, [item])
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def release(self, function: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Call a function on episodes after an error, in process 0 alone: the others may be at another point."""
        if self._processes.is_first:
            self._environments.for_each(lambda item: self._call(function, item, []), items)

    def _call(self, function: Callable[[Item], None], item: Item, answers: list[Answer] | Iterator[Answer]) -> None:
        self._current.answers = answers
        function(item)

    def _share(self, make: Callable[[], Any]) -> Any:
        """Return what a function returns in process 0, or raise its fault."""
        if self._processes.is_first:
            try:
                answer: Answer = ("ok", make())
            except EnvironmentFailedError as fault:
                answer = ("fault", str(fault), fault.code)
            except KeyboardInterrupt:  # of the user at the terminal
                raise
            except BaseException as fault:  # whatever it is, the other processes wait for an answer
                answer = ("fault", describe_fault(fault), "environment_failed")
            self._current.answers.append(answer)
        else:
            answer = next(self._current.answers)
        kind, value, *rest = answer
        if kind == "fault":
            raise EnvironmentFailedError(value, code=rest[0])
        return value


class _SharedEpisode(RemoteEpisode):
    def __init__(
        self, traits: EnvironmentTraits, own: EpisodeEnvironment | None, share: Callable[[Callable[[], Any]], Any]
    ) -> None:
        super().__init__(traits)
        self._own = own
        self._share = share

    def ask(self, what: str, read: Callable[[Any], Read], method: str, *arguments: Any) -> Read:
        """Return the answer of process 0."""

        def make() -> Any:
            assert self._own is not None
            return answer_request(self._own, method, *arguments)

        return read(self._share(make))
