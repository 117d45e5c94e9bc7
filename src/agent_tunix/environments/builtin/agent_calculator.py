"""Agent `agent_calculator`: it solves a row by a client of OpenAI's API, with a calculator of its own."""

import json
import re
from collections.abc import Mapping
from typing import Any

from agent_tunix.environments.builtin.calculator import calculator
from agent_tunix.environments.tools import FunctionTool

_SYSTEM = "Give the result between <answer> and </answer>."
_TOOL = FunctionTool(calculator, "calculator")


async def solve(row: Mapping[str, Any], client: Any) -> bool:
    """Return True if the policy answers the row's question correctly within three turns.

    Args:
        row: Columns `question` and `answer`.
        client: An `openai.AsyncOpenAI`.
    """
    messages: list[Any] = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": row["question"]}]
    for _ in range(3):
        reply = await client.chat.completions.create(model="policy", messages=messages, tools=[_TOOL.declaration()])
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = _TOOL.call(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result.text})
    return re.findall(r"<answer>(.*?)</answer>", message.content or "")[-1:] == [row["answer"]]
