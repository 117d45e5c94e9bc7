"""Installed environments of the library verifiers (https://github.com/PrimeIntellect-ai/verifiers), by name.

`verifiers:NAME` is a package that has `load_environment`, for verifiers below 0.4, or that exports a `Taskset`, for
`verifiers.v1`. The environment runs its own rollouts with a client of the policy, and scores them with its own rubric.
Only worker processes and the program that reads its rows import it.
"""

from agent_tunix.environments.verifiers.rows import VerifiersRows, read_verifiers
from agent_tunix.environments.verifiers.specification import PREFIX, verifiers_name

__all__ = ["PREFIX", "VerifiersRows", "read_verifiers", "verifiers_name"]
