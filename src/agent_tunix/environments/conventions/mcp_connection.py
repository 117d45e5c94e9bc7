"""Connection to an MCP server, for several threads."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TextIO

from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.outcomes import to_text
from agent_tunix.errors import EnvironmentFailedError
from agent_tunix.execution.workers.keeper import kept
from agent_tunix.execution.workers.output import OutputLimit, OutputLog
from agent_tunix.proxies import is_loopback, problem_with_proxies, without_proxies
from agent_tunix.visible_text import one_line

if TYPE_CHECKING:
    from mcp import ClientSession

_LOGGER = logging.getLogger("agent_tunix.environments")
# The SDK logs a traceback for every line that is no message; `_warn_of_output` warns once.
logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)

_START_S = 60.0
_END_S = 10.0
_CONNECTION_CLOSED = -32000
_SHOWN_BYTES = 1000
_LARGEST_MESSAGE = 2**26


class McpConnection:
    """A session with a server, used by any number of threads. It lives in the event loop of a thread of its own.

    Args:
        server: The server.

    Attributes:
        tools: The tools that the server lists, as in the protocol.

    Raises:
        EnvironmentFailedError: The server does not start, or does not list its tools.
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._begun: Future[ClientSession] = Future()
        self._said = b""
        self._has_warned = False
        self.tools: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="mcp", daemon=True)
        self._thread.start()
        try:
            self._session = self._begun.result()
        except Exception as error:
            self._thread.join(_END_S)
            output = f"; it wrote: {one_line(self._said.decode('utf-8', 'replace').strip())}" if self._said else ""
            raise EnvironmentFailedError(
                f"the MCP server {server.text} did not start: {_describe(error)}{output}", code="mcp_server_failed"
            ) from error

    def call(self, tool: str, arguments: dict[str, Any], limit_s: float) -> tuple[str, bool]:
        """Return the text of a tool's result, and whether it is an error.

        Raises:
            EnvironmentFailedError: The call took longer than `limit_s`, or the server is lost.
        """
        try:
            result = self._ask(lambda: self._session.call_tool(tool, arguments), limit_s)
        except TimeoutError as error:
            raise EnvironmentFailedError(
                f"{tool} took longer than {limit_s:g} s", code="environment_timeout"
            ) from error
        except (RuntimeError, ValueError) as error:  # the result does not fit the protocol
            return _describe(error), True
        except Exception as error:  # versions of the SDK and its transports raise different errors
            if getattr(getattr(error, "error", None), "code", _CONNECTION_CLOSED) != _CONNECTION_CLOSED:
                return _describe(error), True  # the server's answer
            raise EnvironmentFailedError(
                f"the MCP server {self._server.text} was lost while {tool} ran: {_describe(error)}",
                code="mcp_server_failed",
            ) from error
        content = result.model_dump(by_alias=True, mode="json")
        return _text_of(content), bool(content.get("isError"))

    def answers(self, limit_s: float) -> bool:
        """Return True if the server answers a request."""
        try:
            self._ask(lambda: self._session.list_tools(), limit_s)
        except Exception:  # versions of the SDK and its transports raise different errors
            return False
        return True

    def close(self) -> None:
        """End the session, and the server if it was started for it."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(_END_S)  # a server at a URL may never confirm the end of its session

    def _ask(self, make: Callable[[], Awaitable[Any]], limit_s: float) -> Any:
        async def limited() -> Any:
            async with asyncio.timeout(limit_s):
                return await make()

        work = limited()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop has ended
            work.close()
            raise ConnectionError("its connection has ended") from error
        while not future.done():
            wait([future], 1.0)
            if not self._thread.is_alive() and not future.done():  # the loop ended before it began the work
                work.close()
                raise ConnectionError("its connection has ended")
        return future.result()

    async def _serve(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with asyncio.timeout(_START_S) as limit, self._opened() as session:
                self.tools = [one async for one in _listed(session)]
                limit.reschedule(None)
                self._begun.set_result(session)
                await self._ending.wait()
        except BaseException as error:
            if not self._begun.done():
                self._begun.set_exception(error)

    @contextlib.asynccontextmanager
    async def _opened(self) -> "AsyncIterator[ClientSession]":
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        server = self._server
        async with contextlib.AsyncExitStack() as ending:
            transport: Any = None
            if server.url:
                if problem := problem_with_proxies(server.url):
                    raise ConnectionError(problem)
                with without_proxies() if is_loopback(server.url) else contextlib.nullcontext():
                    client = create_mcp_http_client()
                await ending.enter_async_context(client)
                # The SDK drops the connection at a message over its limit, by default a megabyte.
                limit = _LARGEST_MESSAGE
                transport = streamable_http_client(server.url, http_client=client, max_sse_event_size=limit)
            else:
                program, *args = kept(server.command)
                env = {name: os.environ.get(name, "") if value is None else value for name, value in server.env.items()}
                parameters = StdioServerParameters(command=program, args=args, env=env, cwd=str(server.directory))
                transport = stdio_client(parameters, errlog=ending.enter_context(self._logged()))
            async with transport as streams:
                reader, writer, *_ = streams
                async with ClientSession(reader, writer, message_handler=self._warn_of_output) as session:
                    session.validate_tool_result = _accept  # type: ignore[method-assign]
                    await session.initialize()
                    yield session

    async def _warn_of_output(self, message: object) -> None:
        """Warn of the first line that a server writes among its messages, as with `print`."""
        if isinstance(message, Exception) and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "the MCP server %s writes to its standard output what is no message, which is ignored; let it write to "
                "its standard error: %s",
                self._server.text,
                one_line(str(message))[:300],
            )

    @contextlib.contextmanager
    def _logged(self) -> Iterator[TextIO]:
        """Yield a file that logs what the server writes to it."""
        reader, writer = os.pipe()
        name = f"MCP server {self._server.text}"
        limit = OutputLimit(name)
        log = OutputLog(name, limit)

        def read() -> None:
            data = os.read(reader, 2**16)
            if data:
                self._said = (self._said + data)[-_SHOWN_BYTES:]
                log.write(data)
            else:
                self._loop.remove_reader(reader)

        self._loop.add_reader(reader, read)
        try:
            with os.fdopen(writer, "w") as file:
                yield file
        finally:
            self._loop.remove_reader(reader)
            os.set_blocking(reader, False)
            with contextlib.suppress(BlockingIOError):
                read()
            log.close()
            limit.tell_omitted()
            os.close(reader)


async def _accept(name: str, result: object) -> None:
    """Accept a result unchecked, because a pattern in the server's schema could keep all threads busy for ever."""


async def _listed(session: "ClientSession") -> AsyncIterator[dict[str, Any]]:
    """Yield the tools of all pages."""
    from mcp.types import PaginatedRequestParams

    cursor = None
    while True:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        description = page.model_dump(by_alias=True, mode="json")
        for tool in description["tools"]:
            yield tool
        if not (cursor := description.get("nextCursor")):
            return


def _text_of(result: Mapping[str, Any]) -> str:
    """Return the texts of a result's content, each in its own line; structured content only if there is no other."""
    content = result.get("content") or []
    if not content and result.get("structuredContent") is not None:
        return to_text(result["structuredContent"])
    return "\n".join(_text_of_block(block) for block in content)


def _text_of_block(block: Mapping[str, Any]) -> str:
    resource = block.get("resource")
    inner = resource if isinstance(resource, Mapping) else block
    if isinstance(text := inner.get("text"), str):
        return text
    about = inner.get("uri") or inner.get("mimeType") or ""
    return f"[{block.get('type', 'content')}{f': {about}' if about else ''}]"


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it took longer than {_START_S:g} s"
    return " ".join(str(error).split()) or type(error).__name__
