"""Environments in a worker process with limits on time and memory."""

from agent_tunix.environments.hosting.client import HostedEnvironment

__all__ = ["HostedEnvironment"]
