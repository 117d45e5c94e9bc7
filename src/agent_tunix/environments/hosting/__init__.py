"""Environments in other processes: in a worker with time and memory limits, or in process 0 of a run with several."""

from agent_tunix.environments.hosting.client import HostedEnvironment
from agent_tunix.environments.hosting.requests import RemoteEpisode, answer_request

__all__ = ["HostedEnvironment", "RemoteEpisode", "answer_request"]
