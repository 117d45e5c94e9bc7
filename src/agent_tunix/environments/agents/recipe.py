"""Agents as plain data, and the functions that they mean."""

import importlib
import importlib.util
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_tunix.environments.randomness import GlobalRandomness
from agent_tunix.environments.resolve import find_definition, import_module
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.own_functions import OwnFunctions, is_of_main
from agent_tunix.rewards import loading, sources
from agent_tunix.rewards.faults import describe_fault

# Name → its place.
BUILTIN_AGENTS: Mapping[str, str] = {"agent_calculator": "agent_tunix.environments.builtin.agent_calculator.solve"}
# Agents that a program or notebook gave as functions.
OWN_AGENTS: OwnFunctions[Callable[..., Any]] = OwnFunctions("agent", "environment.agent", BUILTIN_AGENTS)

_FORMS = "solve(row) or solve(row, client); further parameters need defaults"


@dataclass(frozen=True, slots=True)
class AgentRecipe:
    """Plain data from which a worker builds an agent.

    Attributes:
        function: A registered name, a dotted path or `file.py:NAME` of a function or class; "" for a command.
        command: Words of the command; empty for a function.
        args: Arguments of the class's constructor.
        modules: Modules or files to import first.
        working_directory: Start of relative paths; absolute.
        by_value: The function if a worker cannot load it by its name, packed by `loading.pack_by_value`.
        sources: Texts of the user's modules by path, which a worker compiles whatever the disk holds by then.
    """

    function: str = ""
    command: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    working_directory: Path = field(default_factory=Path.cwd)
    by_value: bytes = field(default=b"", repr=False)
    sources: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The function's name, or the command in shell syntax."""
        return self.function or shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that is a function, ready to be called.

    Attributes:
        function: The function, or an instance of the class.
        takes_client: True if its second parameter is a client.
        is_async: True if it is awaited.
        file: Its file, for tracebacks; None if it has none.
    """

    function: Callable[..., Any]
    takes_client: bool
    is_async: bool
    file: str | None

    @property
    def is_shared(self) -> bool:
        """True if several rollouts may run in one process at once: nothing of theirs is in its environment."""
        return self.is_async and self.takes_client


def register_agent(name: str, *, overwrite: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that registers a function as an agent, for `environment.agent=NAME`.

    Raises:
        ConfigError: The name is malformed or taken.
    """
    return OWN_AGENTS.register(name, overwrite)


def read_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command.

    Raises:
        InvalidEnvironmentError: It is empty, or its quotes are not balanced.
    """
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else map(str, command))
    except ValueError:
        words = ()
    if not words:
        raise InvalidEnvironmentError(
            f"environment.agent.command must be a command with balanced quotes or a list of words, not {command!r}"
        )
    return words


def check_agent(recipe: AgentRecipe) -> Agent | None:
    """Return the agent of a recipe, loaded in this process; None for a command.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: There is no such function, or it cannot be called as an
            agent, or it takes a client and the package `openai` is missing.
    """
    if recipe.command:
        return None
    agent = load_agent(recipe)
    if agent.takes_client and importlib.util.find_spec("openai") is None:
        raise InvalidEnvironmentError(
            f"the agent {recipe.function} takes a client, which requires the package openai; install "
            "agent_tunix[agents], or write it as solve(row), with a client of its own",
            code="missing_package",
        )
    return agent


def load_agent(recipe: AgentRecipe) -> Agent:
    """Return the agent of a recipe; see `check_agent`."""
    directory = recipe.working_directory.resolve()
    with GlobalRandomness(0).active():  # what modules draw is equal in all workers
        for module in recipe.modules:
            import_module(module, directory)
        definition = loading.unpack_by_value(recipe.by_value, directory) if recipe.by_value else _find(recipe)
        if inspect.isclass(definition):
            definition = _construct(definition, recipe)
        elif recipe.args:
            raise InvalidEnvironmentError(
                f"environment.args={dict(recipe.args)} requires the agent to be a class, but {recipe.function} is "
                "none; remove environment.args, or write a class that takes them"
            )
    takes_client = _takes_client(definition, recipe.function)
    call = definition if inspect.isroutine(definition) else type(definition).__call__
    code = getattr(inspect.unwrap(call), "__code__", None)
    # The first is True for a `functools.partial` of an async function too.
    is_async = inspect.iscoroutinefunction(definition) or inspect.iscoroutinefunction(call)
    return Agent(definition, takes_client, is_async, getattr(code, "co_filename", None))


def sendable_agent(recipe: AgentRecipe) -> AgentRecipe:
    """Return a recipe with what a worker cannot load by its name, and the texts of the user's modules.

    Raises:
        InvalidEnvironmentError: The function holds something of this process alone.
    """
    packed: bytes | str = b""
    if recipe.function:
        definition = _find(recipe)
        is_named = loading.place_of(definition) is not None
        if is_of_main(definition) or (OWN_AGENTS.find(recipe.function) is not None and not is_named):
            packed = loading.pack_by_value(definition)
    if isinstance(packed, str):
        raise InvalidEnvironmentError(
            f"the agent {recipe.function!r} cannot be sent to another process: {packed}; make what it needs inside it",
            code="not_sendable",
        )
    working_directory = recipe.working_directory.resolve()
    function = recipe.function
    if not packed and (own := OWN_AGENTS.find(function)) is not None:
        function = loading.place_of(own) or function
    return replace(
        recipe, function=function, working_directory=working_directory, by_value=packed, sources=sources.snapshot()
    )


def _find(recipe: AgentRecipe) -> Any:
    own = OWN_AGENTS.find(recipe.function)
    if own is not None:
        return own
    if recipe.function in BUILTIN_AGENTS:
        module, _, name = BUILTIN_AGENTS[recipe.function].rpartition(".")
        return getattr(importlib.import_module(module), name)
    if "." not in recipe.function:
        raise OWN_AGENTS.unknown(recipe.function)
    return find_definition(recipe.function, recipe.working_directory.resolve())


def _construct(definition: Any, recipe: AgentRecipe) -> Any:
    try:
        return definition(**recipe.args)
    except Exception as error:  # a user's constructor may raise anything
        raise InvalidEnvironmentError(
            f"the agent {recipe.function} cannot be constructed with environment.args={dict(recipe.args)}: "
            f"{describe_fault(error)}"
        ) from error


def _takes_client(function: Any, name: str) -> bool:
    """Return True if a function is called with a row and a client, False if with a row alone."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidEnvironmentError(f"the agent {name} must be a function {_FORMS}, not {function!r}") from error
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if not positional or len(required) > 2 or not set(required) <= {one.name for one in positional[:2]}:
        raise InvalidEnvironmentError(
            f"the agent {name} must have the form {_FORMS}; its parameters are "
            f"{', '.join(map(str, parameters)) or 'none'}",
            code="invalid_agent",
        )
    return len(positional) > 1 and (len(required) > 1 or positional[1].name == "client")
