"""`agent-tunix environments …`: commands, and the pages that they print."""

from agent_tunix.cli.environments.commands import environments

__all__ = ["environments"]
