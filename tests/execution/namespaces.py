"""A system that gives no namespaces, for processes that are isolated from now on."""

from typing import Any

from agent_tunix.execution import sandbox
from agent_tunix.execution.workers import pool

_REFUSE = """
from agent_tunix.execution.isolation import locking
def refuse(): raise OSError("no namespaces")
locking.enter_own_namespaces = refuse
"""


def do_without() -> None:
    """Have isolated processes of this one be refused namespaces."""
    modules: tuple[tuple[Any, str], ...] = (
        (pool, "from agent_tunix.execution.workers import nursery"),
        (sandbox, "from agent_tunix.execution.sandbox.child import main"),
    )
    for module, first in modules:
        boot = module.BOOT.replace("; ", "\n")
        before, found, after = boot.partition(first)
        assert found
        module.BOOT = before + _REFUSE + found + after
