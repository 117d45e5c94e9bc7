"""Isolation of workers that run code of others: what the system must offer, and how a worker locks itself in.

problems()            why uploaded code cannot be isolated here; [] if it can
require_isolation()   the same as an error
lock(…)               isolates the process that calls it, for good
"""

from agent_tunix.rewards.isolation.files import library_paths, module_directories
from agent_tunix.rewards.isolation.locking import Isolation, lock
from agent_tunix.rewards.isolation.requirements import problems, require_isolation

__all__ = ["Isolation", "library_paths", "lock", "module_directories", "problems", "require_isolation"]
