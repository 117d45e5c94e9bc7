"""Isolation of processes that run untrusted code: system requirements, and the isolation itself.

problems()            returns the reasons why code cannot be isolated here; [] if it can
require_isolation()   raises them as an error
lock(…)               isolates the calling process irreversibly
"""

from agent_tunix.execution.isolation.libraries import library_paths, module_directories, standard_paths
from agent_tunix.execution.isolation.locking import lock
from agent_tunix.execution.isolation.requirements import problems, require_isolation

__all__ = ["library_paths", "lock", "module_directories", "problems", "require_isolation", "standard_paths"]
