"""Programs as they lie on the disk once a process has ended."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from agent_tunix.policy.programs import Call, Programs


class KeptPrograms(Programs):
    """Programs that are on the disk as soon as they were asked for."""

    def run(self, call: Call) -> Any:
        """Run the program, and wait until it is kept."""
        found = super().run(call)
        self.flush()
        return found

    def prepare(self, call: Call, traced: Callable[[], None] = lambda: None) -> Any:
        """Prepare the program, and wait until it is kept."""
        found = super().prepare(call, traced)
        self.flush()
        return found


@contextlib.contextmanager
def adding_nothing() -> Iterator[None]:
    """Set JAX up as a run is whose programs are not to be kept."""
    before = jax.config.values["jax_persistent_cache_min_compile_time_secs"]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before)  # type: ignore[no-untyped-call]
