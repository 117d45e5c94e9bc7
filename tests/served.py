"""The packages that stand in for absent ones."""

import sys

from agent_tunix.rewards.shims import SERVED


def served_modules() -> set[str]:
    """Return the served modules that are imported now; modules of installed packages have a file."""
    return {name for name in set(sys.modules) & set(SERVED) if not hasattr(sys.modules[name], "__file__")}
