"""`agent-tunix rewards …`: commands, and the pages that they print."""

from agent_tunix.cli.rewards.commands import rewards
from agent_tunix.cli.rewards.stored import diff, replay

__all__ = ["diff", "replay", "rewards"]
