"""Base class of all conventions of environments."""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment, EpisodeSource, faults_of
from agent_tunix.environments.randomness import SeededEnvironment
from agent_tunix.environments.tools import Tool
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError
from agent_tunix.rewards import loading
from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.base import shorten, source_of
from agent_tunix.rewards.conventions.values import own_copy

# Message of the error of a call that requires a running event loop.
_NEEDS_LOOP = re.compile("no (running|current) event loop")
# Methods that this package calls, of all conventions.
_METHODS = (
    *("reset", "step", "get_reward", "close"),
    *("list_tools", "run_tool", "init_rollout", "release_rollout", "compute_reward"),
)


class EnvironmentAdapter(EpisodeSource):
    """A user's environment, used by the rules of its convention. `open` makes the environment of one episode.

    Args:
        definition: The class, object or function.
        name: Name in messages.
        args: Arguments of the constructor.

    Raises:
        InvalidEnvironmentError: The constructor or a tool cannot be called, or `args` names an unknown argument.
    """

    convention: ClassVar[str]

    def __init__(self, definition: Any, name: str, args: Mapping[str, Any] | None = None) -> None:
        self.definition = definition
        self.name = name
        self.args = dict(args or {})
        self.file = source_of(definition)[0]
        self.check()

    def check(self) -> None:
        """Raise InvalidEnvironmentError if the environment cannot be used."""
        if inspect.isclass(self.definition):
            check_constructor(self.definition, self.name, self.args)
        elif self.args:
            raise InvalidEnvironmentError(
                f"{self.name} takes no arguments, because it is not a class, but got {', '.join(self.args)}"
            )

    def seeded(self, make: Callable[[], EpisodeEnvironment]) -> EpisodeEnvironment:
        """Make an episode with the global random generators of its seed; a built-in environment takes the seed."""
        return make() if self.is_builtin else SeededEnvironment(make)

    @property
    def traits(self) -> EnvironmentTraits:
        """Traits that hold for every episode."""
        return EnvironmentTraits(self.convention)

    def declare(self) -> Sequence[Tool]:
        """Return the tools as far as they are known without an episode."""
        return []

    @property
    def system_prompt(self) -> str:
        """System message of every prompt; "" for none."""
        return ""

    @property
    def is_builtin(self) -> bool:
        """True if the environment comes with this package, and needs no worker process."""
        return str(getattr(self.definition, "__module__", "")).startswith("agent_tunix.environments.builtin.")

    @property
    def waits(self) -> bool:
        """True if calls wait for other processes, so that several episodes may make them at the same time."""
        return self.is_builtin and bool(getattr(self.definition, "waits", False))

    @property
    def reset_parameters(self) -> dict[str, bool]:
        """Columns of the row that `reset` names, each with True if `reset` requires it."""
        return {}

    def describe(self) -> str:
        """Return `module.Class (path/to/file.py:12)`."""
        definition = self.definition if callable(self.definition) else type(self.definition)
        file, line = source_of(definition)
        text = f"{loading.shown_name(definition.__module__)}.{definition.__qualname__}"
        return text if file is None else f"{text} ({shorten(file)}:{line})"

    def close(self) -> None:
        """Release what all episodes share."""


def check_constructor(definition: type, name: str, args: Mapping[str, Any]) -> None:
    """Raise InvalidEnvironmentError if a class lacks methods or has no such arguments."""
    if missing := sorted(getattr(definition, "__abstractmethods__", ())):
        raise InvalidEnvironmentError(
            f"{name}: the class {definition.__qualname__} lacks required methods of its base class: "
            f"{', '.join(missing)}; write them, or name a class that has them"
        )
    parameters, takes_any = parameters_of(definition)
    for argument in args:
        if argument not in parameters and not takes_any:
            raise InvalidEnvironmentError(
                f"{name} has no argument {argument!r}; it has: {', '.join(parameters) or 'none'}"
            )


def parameters_of(function: Callable[..., Any]) -> tuple[dict[str, bool], bool]:
    """Return the named parameters of a function (True: required), and whether it takes any other."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}, True
    usual = (p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return {p.name: p.default is p.empty for p in usual}, any(p.kind is p.VAR_KEYWORD for p in parameters)


class _Unbound:
    """A method seen without its `self`, so that a class can be checked before it has an instance."""

    def __init__(self, function: Any) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__annotations__ = getattr(function, "__annotations__", {})
        signature = inspect.signature(function)
        self.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self) -> None:
        raise TypeError("a method of a class cannot be called without an instance")


def without_self(kind: type, name: str) -> Any:
    """Return a method of a class as if it had no `self`."""
    attribute = inspect.getattr_static(kind, name)
    return _Unbound(attribute) if takes_self(attribute) else getattr(kind, name)


def takes_self(attribute: Any) -> bool:
    """Return True for a function in a class, also inside a wrapper that binds `self`, such as `functools.lru_cache`."""
    is_binding = callable(attribute) and hasattr(type(attribute), "__get__") and not isinstance(attribute, staticmethod)
    return inspect.isfunction(attribute) or (is_binding and inspect.isfunction(inspect.unwrap(attribute)))


def arguments_of_row(function: Callable[..., Any], row: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the columns that a function names, or all if it takes `**kwargs`, and `seed` if it names that.

    Raises:
        EnvironmentFailedError: The row lacks a required column.
    """
    parameters, takes_any = parameters_of(function)
    available = {"seed": seed, **row} if "seed" in parameters else dict(row)
    if missing := [name for name, required in parameters.items() if required and name not in available]:
        raise EnvironmentFailedError(
            f"reset requires the columns {', '.join(missing)}, but the row has {', '.join(row) or 'none'}; add them "
            "to the row, or give the parameters defaults",
            code="missing_column",
        )
    return {name: own_copy(value) for name, value in available.items() if takes_any or name in parameters}


def make_instance(definition: Any, name: str, args: Mapping[str, Any], file: str | None) -> Any:
    """Return an instance of a user's class.

    Raises:
        InvalidEnvironmentError: The constructor requires an argument that is not given.
        EnvironmentFailedError: The constructor fails.
    """
    parameters, _ = parameters_of(definition)
    if missing := [parameter for parameter, required in parameters.items() if required and parameter not in args]:
        raise InvalidEnvironmentError(
            f"{name}: the constructor of {definition.__qualname__} requires {', '.join(missing)}; give them as "
            "arguments"
        )
    with faults_of(f"the constructor of {name}", file):
        # In a tuple, because an instance may be awaitable.
        return call_repeatable(lambda: (definition(**own_copy(dict(args))),))[0]


def call_repeatable(function: Callable[..., Any], /, **arguments: Any) -> Any:
    """Return the result of a function, awaited if needed, which is called again if it requires a running event loop.

    Only a constructor and `reset` may be called again: they begin from the start.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)  # of the first attempt
        try:
            return finished(function(**arguments))
        except RuntimeError as error:
            if not _NEEDS_LOOP.search(str(error)):
                raise
    return running.run(_called(function, **arguments))


def call_method(instance: Any, name: str, *args: Any) -> Any:
    """Return the result of a method, awaited if needed.

    If other methods of the class are async, its author expects an event loop to run during this one too.
    """
    method = getattr(instance, name)
    if any(inspect.iscoroutinefunction(getattr(type(instance), one, None)) for one in _METHODS):
        return running.run(_called(method, *args))
    return finished(method(*args))


async def _called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return await running.awaited(function(*args, **kwargs))


def finished(returned: Any) -> Any:
    """Return a result, awaited if needed."""
    return running.run(running.awaited(returned)) if inspect.isawaitable(returned) else returned
