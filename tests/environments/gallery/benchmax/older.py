"""The older signatures: `completion, ground_truth`, `StandardizedExample`, an instance method."""

from typing import Any, List  # noqa: UP035

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import StandardizedExample, ToolDefinition


class OlderMath(BaseEnv):
    system_prompt = "Use the tool."

    def dataset_preprocess(self, example: Any) -> StandardizedExample:
        return StandardizedExample(
            prompt=example["question"], ground_truth=example["answer"], init_rollout_args={"start": 1}
        )

    async def list_tools(self) -> List[ToolDefinition]:  # noqa: UP006
        schema = {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        }
        return [ToolDefinition(name="add", description="Add two numbers.", input_schema=schema)]

    async def init_rollout(self, rollout_id, start=0, **rollout_args):
        self.__dict__.setdefault("sums", {})[rollout_id] = start

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args) -> Any:
        self.sums[rollout_id] += tool_args["a"] + tool_args["b"]
        return tool_args["a"] + tool_args["b"]

    async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
        return {"correct": float(ground_truth in completion), "used": float(self.sums[rollout_id] > 1)}

    async def release_rollout(self, rollout_id):
        del self.sums[rollout_id]
