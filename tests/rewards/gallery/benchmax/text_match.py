"""The documented text match: the answer in its tags, as a number."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from fastmcp import Client


async def text_match_reward(
    completion: list[dict[str, Any]], ground_truth: str, mcp_client: Client, workspace: Path, **kwargs: Any
) -> float:
    text = completion[-1].get("content", "") if completion else ""
    found = re.search(r"<answer>(.*?)</answer>", text, flags=re.IGNORECASE | re.DOTALL)
    if found is None:
        return 0.0
    try:
        return float(float(ground_truth.lower()) == float(unescape(found.group(1)).strip().lower()))
    except ValueError:
        return 0.0


reward_functions = {"match": text_match_reward}
