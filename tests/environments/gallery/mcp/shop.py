"""Search in a catalogue: structured results, optional arguments, and logging to the standard error."""

import argparse
import logging
import sys
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

logging.basicConfig(stream=sys.stderr, level=logging.INFO)
mcp = MCPServer("shop")
GOODS = [{"name": "tea", "price": 4.0}, {"name": "teapot", "price": 20.0}, {"name": "cup", "price": 3.0}]


@mcp.tool(name="find-goods", description="Find goods by a part of their name.")
def find(part: str, most: float | None = None) -> list[dict[str, Any]]:
    logging.info("looking for %s", part)
    return [one for one in GOODS if part in one["name"] and (most is None or one["price"] <= most)]


@mcp.tool()
def price(article: str) -> float:
    """Get the price of goods by their whole name."""
    for one in GOODS:
        if one["name"] == article:
            return one["price"]
    raise ToolError(f"there are no goods {article!r}; they are {', '.join(one['name'] for one in GOODS)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--discount", type=float, default=0.0)
    discount = parser.parse_args().discount
    for one in GOODS:
        one["price"] *= 1 - discount
    mcp.run()
