"""Tools with faults of every kind. `python workshop.py http` serves on the loopback and prints its port."""

import os
import socket
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents

server = MCPServer("workshop")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def refuse(reason: str) -> str:
    """Refuse to work."""
    raise ToolError(f"refused: {reason}")


@server.tool()
def crash() -> str:
    """Raise an error."""
    raise RuntimeError("broken")


@server.tool()
def exit() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def sleep() -> str:
    """Sleep for an hour."""
    time.sleep(3600)
    return ""


@server.tool()
def meet(mine: str, theirs: str) -> str:
    """Make a file, and wait until there is another."""
    Path(mine).touch()
    while not os.path.exists(theirs):
        time.sleep(0.01)
    return f"found {theirs}"


@server.tool()
async def block() -> str:
    """Keep the whole server from working."""
    time.sleep(3600)
    return ""


@server.tool()
def flood(characters: int = 10_000_000) -> str:
    """Return a long text."""
    return "x" * characters


@server.tool()
def nothing() -> None:
    """Return nothing."""


@server.tool()
def mixed() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Return content of several kinds."""
    page = TextResourceContents(uri="note://1", text="a page", mime_type="text/plain")
    return [
        TextContent(type="text", text="first"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        EmbeddedResource(type="resource", resource=page),
    ]


@server.tool()
def about() -> dict[str, str | None]:
    """Tell of the process."""
    return {"pid": str(os.getpid()), "colour": os.environ.get("COLOUR"), "secret": os.environ.get("SECRET")}


if __name__ == "__main__":
    print("the workshop opens", file=sys.stderr)
    if sys.argv[1:] == ["http"]:
        listener = socket.create_server(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
    else:
        server.run()
