"""State for each rollout, which must be released; a tool that fails."""

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ToolDefinition
from benchmax.prompts.tools import render_tools_prompt


class Cart(BaseEnv):
    def __init__(self, **kwargs):
        self.carts = {}

    async def list_tools(self):
        schema = {
            "type": "object",
            "properties": {"item": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["item"],
            "additionalProperties": False,
        }
        return [ToolDefinition("put", "Put an item in the cart.", schema), ToolDefinition("pay", "Pay.", None)]

    async def init_rollout(self, rollout_id, **rollout_args):
        self.carts[rollout_id] = []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        if tool_name == "pay":
            raise RuntimeError("the card was refused")
        self.carts[rollout_id] += [tool_args["item"]] * tool_args.get("count", 1)
        return self.carts[rollout_id]

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        assert "put" in render_tools_prompt(await self.list_tools(), "Shop.")
        return {"items": float(len(self.carts[rollout_id]))}

    async def release_rollout(self, rollout_id):
        self.carts.pop(rollout_id)
