"""Agents as plain data, and the functions that they mean."""

import importlib.util
import inspect
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_tunix.environments.randomness import GlobalRandomness
from agent_tunix.environments.resolve import EnvironmentRecipe, find_definition
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.rewards.faults import describe_fault

_FORMS = "solve(row) or solve(row, client); further parameters need defaults"


@dataclass(frozen=True, slots=True)
class AgentRecipe(EnvironmentRecipe):
    """Plain data from which a worker builds an agent: `spec` names its function or class; None for a command.

    Attributes:
        command: Words of the command; empty for a function.
    """

    spec: str | None = None
    command: tuple[str, ...] = ()
    is_agent: ClassVar[bool] = True

    @property
    def text(self) -> str:
        """The function's name, or the command in shell syntax."""
        return self.spec or shlex.join(self.command)


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
            f"the agent {recipe.text} takes a client, which requires the package openai; install "
            "agent_tunix[agents], or write it as solve(row), with a client of its own",
            code="missing_package",
        )
    return agent


def load_agent(recipe: AgentRecipe) -> Agent:
    """Return the agent of a recipe; see `check_agent`."""
    with GlobalRandomness(0).active():  # what modules draw is equal in all workers
        definition = find_definition(recipe)
        if inspect.isclass(definition):
            definition = _construct(definition, recipe)
        elif recipe.args:
            raise InvalidEnvironmentError(
                f"environment.args={dict(recipe.args)} requires the agent to be a class, but {recipe.text} is "
                "none; remove environment.args, or write a class that takes them"
            )
    takes_client = _takes_client(definition, recipe.text)
    call = definition if inspect.isroutine(definition) else type(definition).__call__
    code = getattr(inspect.unwrap(call), "__code__", None)
    # The first is True for a `functools.partial` of an async function too.
    is_async = inspect.iscoroutinefunction(definition) or inspect.iscoroutinefunction(call)
    return Agent(definition, takes_client, is_async, getattr(code, "co_filename", None))


def _construct(definition: Any, recipe: AgentRecipe) -> Any:
    try:
        return definition(**recipe.args)
    except Exception as error:  # a user's constructor may raise anything
        raise InvalidEnvironmentError(
            f"the agent {recipe.text} cannot be constructed with environment.args={dict(recipe.args)}: "
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
