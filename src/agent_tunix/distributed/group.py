"""The processes of a run, and the exchange of values between them.

Every process calls the same methods in the same order. Values have built-in types only, and reading them constructs no
other types. An error in one process is raised in all of them, so that none waits for a process that is gone.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from agent_tunix.distributed.loss import AbortHandler, FailureWatch, end_now, is_of_a_partner
from agent_tunix.distributed.store import ValueStore, check_plain
from agent_tunix.errors import AgentTunixError, LostProcessError

Value = TypeVar("Value")


class Processes:
    """The processes of a run, seen from one of them.

    Args:
        index: Index of this process, from 0.
        count: Number of processes.
        store: Store through which they exchange values; None for a single process.
        handler: Prints the error if JAX aborts this process; None for a single process.
    """

    def __init__(
        self, index: int = 0, count: int = 1, store: ValueStore | None = None, handler: AbortHandler | None = None
    ) -> None:
        self.index = index
        self.count = count
        self._store = store
        self._handler = handler
        self._round = 0
        self._how_to_resume = ""

    @property
    def is_first(self) -> bool:
        """True for process 0, which writes and shows the results of the run."""
        return self.index == 0

    # --- agreeing ----------------------------------------------------------------------------------------------------

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each process, by index. Every process waits until all have given theirs.

        Raises:
            LostProcessError: Another process failed or is gone.
        """
        if self._store is None:
            return [value]
        try:
            return self._exchange(self._store, value)
        except Exception as error:
            if isinstance(error, LostProcessError) or not is_of_a_partner(error):
                raise
            raise LostProcessError(self._describe_loss(None)) from error

    def _exchange(self, store: ValueStore, value: Any) -> list[Any]:
        # Process 0 collects and redistributes, so each other process makes two requests, whatever their number.
        self._round += 1
        name = f"round/{self._round}"
        if self.is_first:
            values = [value, *(self._await(store, f"{name}/{index}") for index in range(1, self.count))]
            # All processes have reached this round, so all have read the values of the round before.
            store.remove(f"round/{self._round - 1}")
            store.put(f"{name}/all", values)
            return values
        store.put(f"{name}/{self.index}", value)
        answers: list[Any] = self._await(store, f"{name}/all")
        return answers

    def _await(self, store: ValueStore, name: str) -> Any:
        while (value := store.poll(name)) is None:
            if (failure := self._failure_of_another()) is not None:
                raise LostProcessError(self._describe_loss(failure))
        return value[0]

    def each(self, make: Callable[[], Value]) -> list[Value]:
        """Call a function in every process, and return all results, by process index.

        Raises:
            AgentTunixError: The function failed in a process. All processes raise the error of the first such process.
        """
        error: Exception | None = None
        value: Value | None = None
        try:
            result = make()
            if self._store is not None:
                check_plain(result)
            value = result
        except Exception as caught:
            if self._store is None or is_of_a_partner(caught):
                raise
            error = caught
        outcomes = self.gather((value, None if error is None else (type(error).__name__, str(error))))
        for index, (_, failure) in enumerate(outcomes):
            if failure is not None:
                if index == self.index and error is not None:
                    raise error
                raise _remake(index, *failure)
        return [answer for answer, _ in outcomes]

    def from_first(self, make: Callable[[], Value]) -> Value:
        """Call a function in process 0 alone, and return its result in every process.

        Raises:
            AgentTunixError: The function failed. All processes raise its error.
        """
        results: list[Any] = self.each(make if self.is_first else _make_nothing)
        first: Value = results[0]
        return first

    # --- ending together -------------------------------------------------------------------------------------------

    def remember(self, how_to_resume: str) -> None:
        """Set the text about resuming for the error message, in case a process is lost from now on."""
        self._how_to_resume = how_to_resume
        if self._handler is not None:
            self._handler.text = _named(self._describe_loss(None))

    @contextlib.contextmanager
    def together(self, tell: Callable[[str], bool | None] = lambda text: None) -> Iterator[None]:
        """Report an error of this process to the others, and disconnect together at the end.

        Args:
            tell: Called with the error message if the loss of another process ends this one without an exception.
        """
        if self._store is None:
            yield
            return
        store = self._store
        if self._handler is not None:
            self._handler.tell = tell
        self.remember(self._how_to_resume)

        def end(failure: str) -> None:
            end_now(_named(self._describe_loss(failure)), 1, tell)

        watch = FailureWatch(self._failure_of_another, end)
        watch.start()
        try:
            yield
        except LostProcessError:
            if self._failure_of_another() is not None:  # the failed process is still connected
                leave(self._handler)
            raise
        except BaseException as error:
            with contextlib.suppress(Exception):
                store.put_failure(self.index, f"{type(error).__name__}: {error}")
            leave(self._handler)
            raise
        else:
            leave(self._handler)
        finally:
            watch.stop()

    @contextlib.contextmanager
    def naming_losses(self) -> Iterator[None]:
        """Translate a computation's error about a lost partner into one that a user understands.

        Raises:
            LostProcessError: Another process failed or is gone.
        """
        try:
            yield
        except Exception as error:
            if self._store is None or isinstance(error, AgentTunixError) or not is_of_a_partner(error):
                raise
            # A process that fails with an error of its own reports it before it ends.
            raise LostProcessError(self._describe_loss(self._failure_of_another())) from error

    def _failure_of_another(self) -> str | None:
        assert self._store is not None
        try:
            failures = self._store.failures()
        except Exception as error:
            if is_of_a_partner(error):
                return None
            raise
        return next(
            (f"process {index} failed: {text}" for index, text in failures.items() if index != self.index), None
        )

    def _describe_loss(self, failure: str | None) -> str:
        why = failure or (f"another of the {self.count} processes was lost (killed or disconnected); see its output")
        return f"process {self.index} cannot continue: {why}\n{self._how_to_resume}".rstrip()


_here = Processes()


def here() -> Processes:
    """Return the processes of this run; a single one if `join` has not connected any."""
    return _here


def settle(processes: Processes) -> None:
    """Set the processes that `here` returns."""
    global _here
    _here = processes


def _make_nothing() -> Any:
    return None


def _named(text: str) -> str:
    return f"{LostProcessError.__name__}: {text}"


def leave(handler: AbortHandler | None) -> None:
    """Disconnect once all processes are ready to, because the coordination service ends with process 0."""
    import jax

    if handler is not None:
        handler.text = ""
    with contextlib.suppress(Exception):  # a process that is lost now no longer matters
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
    settle(Processes())


def _remake(index: int, name: str, text: str) -> AgentTunixError:
    """Return the error of another process: of the same class if it is one of ours, else a `LostProcessError`."""
    for kind in _descendants(AgentTunixError):
        if kind.__name__ == name:
            with contextlib.suppress(TypeError):  # the class needs more arguments than a text
                return kind(text)
    return LostProcessError(f"process {index} failed: {name}: {text}")


def _descendants(kind: type[AgentTunixError]) -> Sequence[type[AgentTunixError]]:
    return [kind, *(descendant for child in kind.__subclasses__() for descendant in _descendants(child))]
