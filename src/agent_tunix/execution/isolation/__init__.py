"""Isolation of processes that run code of others: what the system must offer, and how a process locks itself in.

problems()            reasons why such code cannot be isolated here; [] if it can
require_isolation()   the same as an error
lock(…)               isolates the process that calls it, for good
"""

from agent_tunix.execution.isolation.libraries import library_paths, module_directories, standard_paths
from agent_tunix.execution.isolation.locking import lock
from agent_tunix.execution.isolation.requirements import problems, require_isolation

__all__ = ["library_paths", "lock", "module_directories", "problems", "require_isolation", "standard_paths"]
