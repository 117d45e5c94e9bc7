"""A list of things to do, with state, nested arguments and a lifespan."""

import contextlib
from dataclasses import dataclass, field

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel


@dataclass
class Board:
    items: list[str] = field(default_factory=list)


class Item(BaseModel):
    title: str
    tags: list[str] = []


@contextlib.asynccontextmanager
async def lifespan(server):
    yield Board()


mcp = MCPServer("todo", lifespan=lifespan)


@mcp.tool()
async def add_todo(item: Item, ctx: Context) -> str:
    """Add an item."""
    board = ctx.request_context.lifespan_context
    board.items.append(item.title)
    await ctx.info("added")
    return f"{item.title} ({', '.join(item.tags) or 'no tags'})"


@mcp.tool()
def clear_todos(ctx: Context) -> int:
    """Remove all items, and return how many there were."""
    board = ctx.request_context.lifespan_context
    removed, board.items = len(board.items), []
    return removed


if __name__ == "__main__":
    mcp.run()
