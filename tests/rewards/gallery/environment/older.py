"""The older signature: a completion and its reference."""

from benchmax.envs.base_env import BaseEnv


class reward(BaseEnv):
    async def list_tools(self):
        return []

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        raise NotImplementedError

    async def compute_reward(self, rollout_id, completion, ground_truth, **kwargs):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        return {"right": float(str(ground_truth) in text), "brief": 0.5 * (len(text) < 40)}
