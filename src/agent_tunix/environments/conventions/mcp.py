"""Convention `mcp`: the tools of an MCP server, through the official SDK.

A server is a command, which is started and reached over its standard input and output, or the URL of a server that
runs already (streamable HTTP). All episodes share one connection, and their calls may overlap. If the server does not
answer when an episode opens, a new connection is made.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent_tunix.environments.conventions.base import EnvironmentAdapter
from agent_tunix.environments.conventions.mcp_connection import McpConnection
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment
from agent_tunix.environments.outcomes import DEFAULT_MAX_RESULT_CHARS, CallOutcome, CallResult, cut
from agent_tunix.environments.tools import BadArgumentsError, SchemaTool, Tool
from agent_tunix.errors import EnvironmentFailedError, InvalidEnvironmentError


class McpAdapter(EnvironmentAdapter):
    """The tools of one MCP server.

    Args:
        server: The server.
        timeout_s: Wall time of one call.
        concurrency: Number of threads that may make calls at the same time.

    Raises:
        InvalidEnvironmentError: The SDK is not installed, or the server does not start or list its tools.
    """

    convention = "mcp"

    def __init__(self, server: McpServer, timeout_s: float = 10.0, concurrency: int = 1) -> None:
        self.concurrency = concurrency
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: McpConnection | None = None
        self._tools: list[dict[str, Any]] = []
        super().__init__(server, server.text)

    def check(self) -> None:
        """Connect to the server, and list its tools."""
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise InvalidEnvironmentError(
                f"environment.mcp requires the MCP SDK ({error}); run `pip install agent_tunix[mcp]`",
                code="missing_package",
            ) from error
        try:
            self._tools = self._connect().tools
        except EnvironmentFailedError as error:
            raise InvalidEnvironmentError(str(error), code=error.code) from error

    @property
    def is_builtin(self) -> bool:
        """True: the user's code runs in the server."""
        return True

    @property
    def waits(self) -> bool:
        """True: calls wait for the server."""
        return True

    def declare(self) -> Sequence[Tool]:
        """Return the tools of the server."""
        return McpEnvironment(self._connection, self._tools, self._timeout_s).tools

    def describe(self) -> str:
        """Return `MCP server COMMAND` or `MCP server URL`."""
        return f"MCP server {self.name}"

    def open(self) -> EpisodeEnvironment:
        """Return a new episode, over a new connection if the server does not answer."""
        connection = self._connection
        if connection is None or not connection.answers(self._timeout_s):
            with self._lock:
                if self._connection is connection:  # no other thread has replaced it
                    if connection is not None:
                        connection.close()
                    self._connect()
        return McpEnvironment(self._connection, self._tools, self._timeout_s)

    def close(self) -> None:
        """End the connection, and the server that was started for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> McpConnection:
        self._connection = None
        self._connection = McpConnection(self.definition)
        return self._connection


class McpEnvironment(EpisodeEnvironment):
    """An episode with the tools of an MCP server."""

    traits = EnvironmentTraits("mcp")

    def __init__(self, connection: McpConnection | None, tools: Sequence[Mapping[str, Any]], timeout_s: float) -> None:
        self._tools = [_McpTool(one, connection, timeout_s) for one in tools]

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools of the server."""
        return self._tools

    def reset(self, row: Mapping[str, Any], seed: int) -> str | None:
        """Do nothing: MCP has no episodes."""
        return None


class _McpTool(SchemaTool):
    may_overlap = True

    def __init__(self, declaration: Mapping[str, Any], connection: McpConnection | None, timeout_s: float) -> None:
        super().__init__(
            declaration["name"],
            declaration.get("description") or "",
            declaration.get("inputSchema"),
            lambda given: None,
        )
        self._connection = connection
        self._timeout_s = timeout_s

    def call(self, arguments: Mapping[str, Any], max_result_chars: int = DEFAULT_MAX_RESULT_CHARS) -> CallResult:
        """Call the tool. An error that the server reports is told to the model; a lost server ends the episode."""
        started = time.perf_counter()
        try:
            converted = self.convert(arguments)
        except BadArgumentsError as error:
            return CallResult(cut(f"Error: {error}", max_result_chars), CallOutcome.BAD_ARGUMENTS)
        if self._connection is None:
            raise EnvironmentFailedError(f"{self.name} cannot be called, because its server was closed")
        text, is_error = self._connection.call(self.name, converted, self._timeout_s)
        seconds = time.perf_counter() - started
        if is_error:
            text_shown = cut(f"Error: {text or f'{self.name} failed'}", max_result_chars)
            return CallResult(text_shown, CallOutcome.TOOL_ERROR, seconds)
        outcome = CallOutcome.OK if len(text) <= max_result_chars else CallOutcome.TOO_LONG
        return CallResult(cut(text, max_result_chars), outcome, seconds)
