"""Installed environments of the library verifiers (https://github.com/PrimeIntellect-ai/verifiers), by name.

An environment is a package with `load_environment`, for verifiers below 0.4, or one that exports a `Taskset`, for
`verifiers.v1`. It runs its own rollouts with a client of the policy, and scores them with its own rubric. The library
is imported where rows are read, and in worker processes.
"""

from agent_tunix.environments.verifiers.agent import agent_of, open_agents
from agent_tunix.environments.verifiers.loading import read_rows

__all__ = ["agent_of", "open_agents", "read_rows"]
