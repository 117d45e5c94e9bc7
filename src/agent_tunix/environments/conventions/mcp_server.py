"""Description of an MCP server: the command that starts it, or its address."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tunix.errors import InvalidEnvironmentError

_KEYS = ("command", "args", "env", "url")
_FORM = "have `command`, perhaps with `args` and `env`, or `url`"


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server.

    Attributes:
        command: Command that starts it; empty for one that runs already.
        env: Variables of the command; None for this process's value. HOME, LOGNAME, PATH, SHELL, TERM and USER are
            passed on in any case.
        url: Address of one that runs already.
        directory: Working directory of the command.
    """

    command: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    url: str = ""
    directory: Path = field(default_factory=Path.cwd)

    @classmethod
    def read(cls, entry: Any, directory: Path) -> "McpServer":
        """Return the server of an item of `environment.mcp`.

        Raises:
            InvalidEnvironmentError: The item has another form.
        """
        if not isinstance(entry, Mapping) or set(entry) - set(_KEYS) or ("command" in entry) == ("url" in entry):
            raise _invalid(_FORM, entry)
        command, args, env = entry.get("command", ()), entry.get("args") or (), entry.get("env") or {}
        if isinstance(command, str):
            try:
                command = shlex.split(command)
            except ValueError:
                raise _invalid("have a command with balanced quotes", entry) from None
        if not isinstance(command, Sequence) or not isinstance(args, list | tuple) or not isinstance(env, Mapping):
            raise _invalid("have a `command` that is a text or list, a list of `args` and a mapping `env`", entry)
        if "url" in entry:
            url = str(entry["url"])
            if len(entry) > 1 or not url.startswith(("http://", "https://")):
                raise _invalid("have a `url` alone that starts with http:// or https://", entry)
            return cls(url=url)
        if not command:
            raise _invalid("name the program in `command`", entry)
        words = tuple(str(word) for word in (*command, *args))
        variables = {str(name): None if value is None else str(value) for name, value in env.items()}
        return cls(words, variables, directory=directory.resolve())

    @property
    def text(self) -> str:
        """The URL, or the command with its variables in shell syntax."""
        env = [
            f"{name}=${name}" if value is None else f"{name}={shlex.quote(value)}" for name, value in self.env.items()
        ]
        return self.url or " ".join([*env, shlex.join(self.command)])


def _invalid(what: str, value: Any) -> InvalidEnvironmentError:
    return InvalidEnvironmentError(f"an item of environment.mcp must {what}, not {value!r}")
