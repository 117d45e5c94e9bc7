"""The low-level server of the SDK: schemas by hand, and results with resources."""

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PAGES = {"rome": "Rome was not built in a day.", "ship": "A ship in harbour is safe."}
SCHEMA = {
    "type": "object",
    "properties": {"topic": {"type": "string", "enum": sorted(PAGES), "description": "A topic."}},
    "required": ["topic"],
    "additionalProperties": False,
}


async def list_tools(ctx, params):
    return types.ListToolsResult(tools=[types.Tool(name="read_page", description="Read a page.", input_schema=SCHEMA)])


async def call_tool(ctx, params):
    topic = params.arguments["topic"]
    page = types.TextResourceContents(uri=f"page://{topic}", mime_type="text/plain", text=PAGES[topic])
    title = types.TextContent(type="text", text=topic.title())
    return types.CallToolResult(content=[title, types.EmbeddedResource(type="resource", resource=page)])


async def main():
    server = Server("archive", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
