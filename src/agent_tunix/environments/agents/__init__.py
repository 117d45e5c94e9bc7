"""Agents: programs that drive an episode themselves and call the policy over HTTP.

An agent is a Python function of a row, perhaps with a client of OpenAI's API, or any command. It runs in worker
processes with limits. Nothing here knows the server that it calls.
"""

from agent_tunix.environments.agents.pool import AgentLimits, AgentOutcome, AgentPool, AgentRun, failed_score
from agent_tunix.environments.agents.recipe import (
    BUILTIN_AGENTS,
    OWN_AGENTS,
    AgentRecipe,
    check_agent,
    register_agent,
    sendable_agent,
)

__all__ = [
    "BUILTIN_AGENTS",
    "OWN_AGENTS",
    "AgentLimits",
    "AgentOutcome",
    "AgentPool",
    "AgentRecipe",
    "AgentRun",
    "check_agent",
    "failed_score",
    "register_agent",
    "sendable_agent",
]
