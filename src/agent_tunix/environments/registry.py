"""Registry of tools and environments by name.

    @register_tool("weather")
    def weather(city: str) -> str:
        \"\"\"Return the weather of a city.\"\"\"
        return "sunny"

    @register_environment("guess")
    class Guess: ...

Both share one set of names, so that a name always means one thing.
"""

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from agent_tunix.environments.closest import closest
from agent_tunix.errors import InvalidEnvironmentError, UnknownEnvironmentError
from agent_tunix.rewards.registry import is_name

logger = logging.getLogger("agent_tunix.environments")

Definition = TypeVar("Definition", bound=Callable[..., Any])
RegisteredKind = Literal["tool", "environment"]

# Built-in name → kind, and `module:attribute` below `agent_tunix.environments.builtin`.
BUILTIN: dict[str, tuple[RegisteredKind, str]] = {
    "calculator": ("tool", "calculator:calculator"),
    "python": ("tool", "python:PythonSandbox"),
    "search": ("tool", "search:SearchCorpus"),
    "guess_number": ("environment", "guess_number:GuessNumber"),
    "word_ladder": ("environment", "word_ladder:WordLadder"),
}


@dataclass(frozen=True, slots=True)
class RegisteredEntry:
    """A registered tool or environment.

    Attributes:
        kind: `tool` or `environment`.
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
    error, unless it is the same function, as when a module is imported twice.

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
    """Register a class as an environment, in any convention.

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


def get_registered(name: str) -> RegisteredEntry:
    """Return what is registered under a name; the user's registrations come before built-ins.

    Raises:
        UnknownEnvironmentError: Nothing has this name.
    """
    if name in _registered:
        return _registered[name]
    if name not in BUILTIN:
        names = list_registered()
        raise UnknownEnvironmentError(
            f"there is no environment or tool {name!r}{closest(name, names)} There are: {', '.join(names)}. Give your "
            "own as module.Class or file.py:Class."
        )
    kind, place = BUILTIN[name]
    module, _, attribute = place.partition(":")
    return RegisteredEntry(kind, getattr(importlib.import_module(f"{__package__}.builtin.{module}"), attribute))


def list_registered() -> list[str]:
    """Return the sorted names of all tools and environments."""
    return sorted({*BUILTIN, *_registered})


def _registrar(kind: RegisteredKind, name: str, overwrite: bool, convention: str) -> Callable[[Definition], Definition]:
    if not is_name(name):
        raise InvalidEnvironmentError(
            f"{name!r} cannot be the name of a tool or environment; use at most 100 letters, digits, `_` and `-`, "
            "starting with a letter or `_`"
        )

    def register(definition: Definition) -> Definition:
        from agent_tunix.environments.conventions import adapt_environment

        adapt_environment(definition, name, convention=convention)
        previous = _registered.get(name)
        if previous is not None and not overwrite and not _is_same(previous.definition, definition):
            raise InvalidEnvironmentError(
                f"a {previous.kind} named {name!r} is already registered: {previous.definition!r}; choose another "
                "name, or pass overwrite=True"
            )
        if previous is None and name in BUILTIN and not overwrite:
            logger.warning("the built-in %s %r is replaced by %r", BUILTIN[name][0], name, definition)
        _registered[name] = RegisteredEntry(kind, definition, convention)
        return definition

    return register


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two objects are the same, or one object that was imported twice from its file."""
    return one is other or (_place(one) is not None and _place(one) == _place(other))


def _place(definition: Any) -> tuple[str, str] | None:
    module = str(getattr(definition, "__module__", ""))
    name = str(getattr(definition, "__qualname__", ""))
    return (module, name) if "@" in module and name and "<locals>" not in name else None
