"""Environments and tools, on which a policy acts over several turns, and the run of one episode on the host.

Everything here works offline and loads neither JAX nor Hydra. `sampling/episodes.py` runs episodes in training.
"""

from agent_tunix.environments.conventions import EnvironmentAdapter, ToolsEnvironment, adapt_environment
from agent_tunix.environments.declarations import format_of_template, render_calls, render_declarations
from agent_tunix.environments.environment import EnvironmentTraits, EpisodeEnvironment
from agent_tunix.environments.episode import (
    AgentRecord,
    CallRecord,
    EpisodeResult,
    PolicyCall,
    StopReason,
    UnreadCall,
    run_episode,
)
from agent_tunix.environments.outcomes import CallOutcome, CallResult, Message, Reply
from agent_tunix.environments.registry import list_registered, register_environment, register_tool
from agent_tunix.environments.resolve import EnvironmentRecipe, resolve_environment
from agent_tunix.environments.tool_calls import (
    CallFault,
    MalformedCall,
    ParsedTurn,
    ToolCall,
    ToolCallFormat,
    parse_turn,
)
from agent_tunix.environments.tools import FunctionTool, SchemaTool, Tool

__all__ = [
    "AgentRecord",
    "CallFault",
    "CallOutcome",
    "CallRecord",
    "CallResult",
    "EnvironmentAdapter",
    "EnvironmentRecipe",
    "EnvironmentTraits",
    "EpisodeEnvironment",
    "EpisodeResult",
    "FunctionTool",
    "MalformedCall",
    "Message",
    "ParsedTurn",
    "PolicyCall",
    "Reply",
    "SchemaTool",
    "StopReason",
    "Tool",
    "ToolCall",
    "ToolCallFormat",
    "ToolsEnvironment",
    "UnreadCall",
    "adapt_environment",
    "format_of_template",
    "list_registered",
    "parse_turn",
    "register_environment",
    "register_tool",
    "render_calls",
    "render_declarations",
    "resolve_environment",
    "run_episode",
]
