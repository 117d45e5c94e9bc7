"""Programs of a process that ends: all it compiled lies on the disk."""

from collections.abc import Callable
from typing import Any

from agent_tunix.policy.programs import Call, Programs


class KeptPrograms(Programs):
    """Programs that are on the disk as soon as they were asked for, so that a test may look there at once."""

    def run(self, call: Call) -> Any:
        """As it was, and kept."""
        found = super().run(call)
        self.flush()
        return found

    def prepare(self, call: Call, traced: Callable[[], None] = lambda: None) -> Any:
        """As it was, and kept."""
        found = super().prepare(call, traced)
        self.flush()
        return found
