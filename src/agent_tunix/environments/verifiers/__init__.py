"""Installed environments of the library verifiers (https://github.com/PrimeIntellect-ai/verifiers), by name.

An environment is a package with `load_environment`, for verifiers below 0.4, or one that exports a `Taskset`, for
`verifiers.v1`. It runs its own rollouts with a client of the policy, and scores them with its own rubric. Only worker
processes and the program that reads its rows import the library.
"""

from agent_tunix.environments.verifiers.agent import agent_of
from agent_tunix.environments.verifiers.rows import read_verifiers

__all__ = ["agent_of", "read_verifiers"]
