"""A completion that may be a text or messages."""

from fastmcp.exceptions import ToolError
from mcp.types import TextContent


async def either(completion, ground_truth: str, workspace, mcp_client=None, **kwargs) -> float:
    if isinstance(completion, list):
        completion = completion[-1].get("content", "") if completion else ""
    try:
        return 1.0 if str(completion).strip().endswith(f"<answer>{ground_truth}</answer>") else 0.0
    except ToolError:
        return -1.0


def text_of(response):
    return "".join(part.text for part in response.content if isinstance(part, TextContent))


reward_functions = {"match": either}
