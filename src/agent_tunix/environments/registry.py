"""Registry of tools, environments and agents by name.

    @register_tool("weather")
    def weather(city: str) -> str:
        \"\"\"Return the weather of a city.\"\"\"
        return "sunny"

    @register_environment("guess")
    class Guess: ...

All share one set of names, so that a name always means one thing.
"""

import functools
import importlib
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from agent_tunix.environments.closest import closest
from agent_tunix.errors import InvalidEnvironmentError, UnknownEnvironmentError
from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.registry import is_name

logger = logging.getLogger("agent_tunix.environments")

Definition = TypeVar("Definition", bound=Callable[..., Any])
RegisteredKind = Literal["tool", "environment", "agent"]

# Built-in name → kind, and `module:attribute` below `agent_tunix.environments.builtin`.
BUILTIN: dict[str, tuple[RegisteredKind, str]] = {
    "calculator": ("tool", "calculator:calculator"),
    "python": ("tool", "python:PythonSandbox"),
    "search": ("tool", "search:SearchCorpus"),
    "guess_number": ("environment", "guess_number:GuessNumber"),
    "agent_calculator": ("agent", "agent_calculator:solve"),
}


@dataclass(frozen=True, slots=True)
class RegisteredEntry:
    """A registered tool, environment or agent.

    Attributes:
        kind: `tool`, `environment` or `agent`.
        definition: The function or class.
        convention: Convention in which it is written; `auto`: the one that its members show.
    """

    kind: RegisteredKind
    definition: Any
    convention: str = "auto"


_registered: dict[str, RegisteredEntry] = {}


def register_tool(name: str, *, overwrite: bool = False) -> Callable[[Definition], Definition]:
    """Register a function, or a class whose public methods are tools, as a tool.

    Registering a built-in's name replaces the built-in and logs a warning. A name that is registered already is an
    error, unless it is the same function, as when a module is imported twice, or the new one comes from a notebook or a
    script, as when a cell is run again.

    Args:
        name: Letters, digits, `_` and `-`.
        overwrite: Replace whatever has this name, without a warning.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        InvalidEnvironmentError: The name is malformed or taken, or the function cannot be described to a model.
    """
    return _registrar("tool", name, overwrite, "auto")


def register_environment(
    name: str, *, overwrite: bool = False, convention: str = "auto"
) -> Callable[[Definition], Definition]:
    """Register a class as an environment, in any convention, or a function that makes an instance of one.

    Such a function is called once now, to learn the class, and then for each episode. `environment.args` are its
    arguments.

    Args:
        name: Letters, digits, `_` and `-`.
        overwrite: Replace whatever has this name, without a warning.
        convention: `class`, `benchmax` or `text`, if the members do not show it; see `conventions`.

    Returns:
        A decorator that returns the class unchanged.

    Raises:
        InvalidEnvironmentError: The name is malformed or taken, or the class is not an environment.
    """
    return _registrar("environment", name, overwrite, convention)


def register_agent(name: str, *, overwrite: bool = False) -> Callable[[Definition], Definition]:
    """Return a decorator that registers a function or class as an agent, for `environment.agent=NAME`.

    Raises:
        InvalidEnvironmentError: The name is malformed or taken.
    """
    return _registrar("agent", name, overwrite, "auto")


def find_registered(name: str) -> Any:
    """Return the function or class that a user has registered in this process; None if there is none."""
    return _registered[name].definition if name in _registered else None


def get_registered(name: str, *, is_agent: bool = False) -> RegisteredEntry:
    """Return the environment or tool, or else the agent, of a name; the user's registrations come before built-ins.

    Raises:
        UnknownEnvironmentError: Nothing of this kind has this name.
    """
    if name not in (names := list_registered(are_agents=is_agent)):
        raise UnknownEnvironmentError(
            f"there is no {'agent' if is_agent else 'environment or tool'} {name!r}{closest(name, names)} There are: "
            f"{', '.join(names)}. Give your own as module.NAME or file.py:NAME."
        )
    if name in _registered:
        return _registered[name]
    kind, place = BUILTIN[name]
    module, _, attribute = place.partition(":")
    return RegisteredEntry(kind, getattr(importlib.import_module(f"{__package__}.builtin.{module}"), attribute))


def list_registered(*, are_agents: bool = False) -> list[str]:
    """Return the sorted names of all tools and environments, or else of all agents."""
    kinds = {name: kind for name, (kind, _) in BUILTIN.items()} | {name: one.kind for name, one in _registered.items()}
    return sorted(name for name, kind in kinds.items() if (kind == "agent") is are_agents)


def _registrar(kind: RegisteredKind, name: str, overwrite: bool, convention: str) -> Callable[[Definition], Definition]:
    if not is_name(name):
        raise InvalidEnvironmentError(
            f"{name!r} cannot be the name of a tool, environment or agent; use at most 100 letters, digits, `_` and "
            "`-`, starting with a letter or `_`"
        )

    def register(definition: Definition) -> Definition:
        from agent_tunix.environments.conventions import adapt_environment

        used: Any = definition
        if kind == "environment" and (inspect.isroutine(definition) or isinstance(definition, functools.partial)):
            used = _class_of(definition, name)
        if kind != "agent":
            adapt_environment(used, name, convention=convention)
        previous = _registered.get(name)
        may_replace = overwrite or is_of_main(definition)
        if previous is not None and not may_replace and not _is_same(previous.definition, definition):
            raise InvalidEnvironmentError(
                f"a {previous.kind} named {name!r} is already registered: {previous.definition!r}; choose another "
                "name, or pass overwrite=True"
            )
        if previous is None and name in BUILTIN and not overwrite:
            logger.warning("the built-in %s %r is replaced by %r", BUILTIN[name][0], name, definition)
        _registered[name] = RegisteredEntry(kind, used, convention)
        return definition

    return register


def _class_of(factory: Callable[..., Any], name: str) -> type:
    """Return a class whose constructor calls a function that makes an environment."""
    try:
        example = factory()
        signature = inspect.signature(factory)
    except Exception as error:  # a user's function may raise anything
        raise InvalidEnvironmentError(
            f"{name!r} must be a class, or a function that makes an environment without arguments, but {factory!r} "
            f"failed: {describe_fault(error)}"
        ) from error
    if callable(close := getattr(example, "close", None)):
        close()
    names: dict[str, Any] = {"__new__": lambda cls, **args: factory(**args), "__signature__": signature}
    inner = factory.func if isinstance(factory, functools.partial) else factory
    names |= {"__module__": inner.__module__, "__qualname__": inner.__qualname__}
    return type(type(example).__name__, (type(example),), names)


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two objects are the same, or one object that was imported twice from its file."""
    return one is other or (_place(one) is not None and _place(one) == _place(other))


def _place(definition: Any) -> tuple[str, str] | None:
    module = str(getattr(definition, "__module__", ""))
    name = str(getattr(definition, "__qualname__", ""))
    return (module, name) if "@" in module and name and "<locals>" not in name else None
