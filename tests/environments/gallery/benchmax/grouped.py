"""A reward of a group, and the logging context."""

import logging

from benchmax.envs.base_env import BaseEnv
from benchmax.envs.logging import rollout_context
from benchmax.envs.types import ToolDefinition

logger = logging.getLogger(__name__)


class Grouped(BaseEnv):
    async def list_tools(self):
        return [ToolDefinition(name="now", description="Return the time.")]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return "noon"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"length": 0.25}

    async def compute_group_reward(self, rollout_ids, messages_list, tasks, **kwargs):
        for rollout_id in rollout_ids:
            with rollout_context(rollout_id):
                logger.info("scored %s", rollout_id)
        return [{"noon": float("noon" in str(messages))} for messages in messages_list]
