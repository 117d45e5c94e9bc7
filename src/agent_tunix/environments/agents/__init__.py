"""Agents: programs that drive an episode themselves and call the policy over HTTP.

An agent is a Python function of a row, perhaps with a client of OpenAI's API, or any command. It runs in worker
processes with limits. Nothing here knows the server that it calls.
"""

from agent_tunix.environments.agents.pool import (
    AgentLimits,
    AgentOutcome,
    AgentPool,
    AgentRun,
    failed_score,
    open_agents,
)
from agent_tunix.environments.agents.recipe import AgentRecipe, check_agent
from agent_tunix.environments.registry import register_agent

__all__ = [
    "AgentLimits",
    "AgentOutcome",
    "AgentPool",
    "AgentRecipe",
    "AgentRun",
    "check_agent",
    "failed_score",
    "open_agents",
    "register_agent",
]
