"""How often Python looks for garbage while a program starts.

Importing and tracing make objects by the million that stay. Python's own thresholds have all of them looked through
again and again, for a fifth of what a start takes. From the second step on, and after the run, they hold again: what a
run leaves in cycles is models and compiled programs, and a process that keeps those of many runs ends for want of
memory, or of mappings, with a segmentation fault.

What a process imports for its first run stays, and is not looked through at all: Tunix asks for that as it builds a
learner, which took longer than the building.
"""

import contextlib
import functools
import gc
from collections.abc import Iterator

_AT_START = (50_000, 20, 100)
_usual = gc.get_threshold()


@contextlib.contextmanager
def rarely_sought() -> Iterator[None]:
    """Garbage is hardly looked for within this, or until `sought_as_usual`."""
    gc.set_threshold(*_AT_START)
    try:
        yield
    finally:
        sought_as_usual()


@functools.cache
def never_sought_in_imports() -> None:
    """What there is now is not looked through again; once a process, since later it is also what a run has left."""
    gc.freeze()


def sought_as_usual() -> None:
    """The thresholds are again what they were when this module was imported."""
    gc.set_threshold(*_usual)
