"""Detection of an environment's convention from its members.

| convention | sign |
| --- | --- |
| `benchmax` | `list_tools` and `run_tool`; or a method of a benchmax reward, without `reset` and `get_reward` |
| `text` | `reset` and `step`, without `get_reward` |
| `class` | a class with `reset`, `get_reward` or another public method |
| `tools` | a function |
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any

from agent_tunix.environments.conventions.base import EnvironmentAdapter
from agent_tunix.environments.conventions.benchmax import BenchmaxAdapter
from agent_tunix.environments.conventions.classes import ClassAdapter, tool_methods
from agent_tunix.environments.conventions.functions import ToolAdapter
from agent_tunix.environments.conventions.text import TextAdapter
from agent_tunix.errors import InvalidEnvironmentError
from agent_tunix.rewards.conventions.base_env import BaseEnv
from agent_tunix.rewards.conventions.environment import METHODS

ENVIRONMENT_CONVENTIONS: Mapping[str, type[EnvironmentAdapter]] = {
    kind.convention: kind for kind in (BenchmaxAdapter, TextAdapter, ClassAdapter, ToolAdapter)
}

_ADAPTER = (
    "write a class without a base whose `reset(self, **row)` makes yours and returns its first observation as text"
)
# Package → its name, and what to write instead.
_UNSUPPORTED = {
    "verifiers": (
        "verifiers",
        "write data=verifiers:NAME, where NAME is its module with `load_environment`, in the working directory or"
        " installed",
    ),
    "skyrl_gym": (
        "SkyRL",
        f"{_ADAPTER}, and whose `step(self, action)` calls its `step` and returns the content of `observations`,"
        " `reward`, `done` and `metadata`",
    ),
    "swift": (
        "ms-swift",
        f"{_ADAPTER}, and whose `async step(self, action)` returns what its `step` returns for"
        ' `[{"role": "assistant", "content": action}]`',
    ),
    "benchmax.harness": (
        "benchmax that calls the model itself, in `run_rollout`",
        "write a `BaseEnv` with `list_tools`, `run_tool` and `compute_reward`",
    ),
    "openenv.mcp": (
        "OpenEnv's `MCPEnvironment`",
        "name its MCP server in environment.mcp, or write its tools as public methods of a class with `reset(**row)`"
        " and `get_reward()`",
    ),
}


def adapt_environment(
    definition: Any, name: str, args: Mapping[str, Any] | None = None, convention: str = "auto"
) -> EnvironmentAdapter:
    """Return the environment of a class, object or function, in any convention.

    Raises:
        InvalidEnvironmentError: `definition` fits no convention, or cannot be used in its own.
    """
    if convention not in ("auto", *ENVIRONMENT_CONVENTIONS):
        raise InvalidEnvironmentError(
            f"the convention of {name!r} must be auto, {', '.join(ENVIRONMENT_CONVENTIONS)}, not {convention!r}"
        )
    kind = detect_convention(definition, name) if convention == "auto" else convention
    return ENVIRONMENT_CONVENTIONS[kind](definition, name, args)


def detect_convention(definition: Any, name: str) -> str:
    """Return the convention of a class, object or function.

    Raises:
        InvalidEnvironmentError: It fits no convention, or is an environment of a library that is not supported.
    """
    _refuse_libraries(definition, name)
    members = ("list_tools", "run_tool", "reset", "step", "get_reward")
    has = {member: callable(getattr(definition, member, None)) for member in members}
    scores = any(callable(getattr(definition, method, None)) for method in METHODS)
    if (has["list_tools"] and has["run_tool"]) or (scores and not has["reset"] and not has["get_reward"]):
        return "benchmax"
    if inspect.isclass(definition):
        if has["reset"] and has["step"] and not has["get_reward"]:
            return "text"
        if has["reset"] or has["get_reward"] or tool_methods(definition):
            return "class"
    elif inspect.isroutine(definition):
        return "tools"
    elif has["reset"]:
        raise InvalidEnvironmentError(
            f"{name!r} is an instance of {type(definition).__qualname__}, which all episodes would share; name the "
            "class"
        )
    raise InvalidEnvironmentError(
        f"{name!r} is no environment or tool, but {definition!r}; name a function, or a class with public methods, "
        "`reset` and `step`, or `list_tools` and `run_tool`"
    )


def _refuse_libraries(definition: Any, name: str) -> None:
    """Refuse an environment of a library whose methods would be taken for tools."""
    kinds = definition.__mro__ if inspect.isclass(definition) else type(definition).__mro__
    packages = {kind.__module__.partition(".")[0] for kind in kinds}
    if inspect.isfunction(definition) and definition.__name__ == "load_environment":
        packages.add("verifiers")
    has_its_methods = all(callable(getattr(definition, method, None)) for method in ("init", "step"))
    if has_its_methods and not hasattr(definition, "reset") and not hasattr(definition, "get_reward"):
        packages.add("skyrl_gym")
    own = (kind for kind in kinds if kind.__module__.partition(".")[0] != "benchmax")
    if ("benchmax" in packages or BaseEnv in kinds) and any("run_rollout" in vars(kind) for kind in own):
        packages.add("benchmax.harness")
    if any(kind.__name__ == "MCPEnvironment" and ".env_server" in kind.__module__ for kind in kinds):
        packages.add("openenv.mcp")
    for package, (library, advice) in _UNSUPPORTED.items():
        if package in packages:
            raise _unsupported(name, library, advice)


def refuse_source(text: str, name: str) -> None:
    """Refuse a file that could not be imported if it has an environment that would be refused afterwards."""
    if re.search(r"^\s*from\s+\S*env_server\S*\s+import\b.*\bMCPEnvironment\b", text, re.MULTILINE):
        raise _unsupported(name, *_UNSUPPORTED["openenv.mcp"])


def _unsupported(name: str, library: str, advice: str) -> InvalidEnvironmentError:
    return InvalidEnvironmentError(
        f"{name!r} is an environment of {library}, which is not supported; {advice}", code="unsupported_library"
    )
