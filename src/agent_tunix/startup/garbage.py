"""Thresholds of Python's garbage collector while a program starts.

Importing and tracing create millions of objects that stay alive. With Python's default thresholds the collector scans
them again and again, which takes a fifth of the start. From the second step on, and after the run, the default
thresholds apply again: a run leaves models and compiled programs in reference cycles. A process that keeps those of
many runs runs out of memory, or out of memory mappings, and ends with a segmentation fault.

The collector never scans the objects that exist after a process has imported the modules of its first run, because
they stay for the life of the process.
"""

import contextlib
import functools
import gc
from collections.abc import Iterator

_AT_START = (50_000, 20, 100)
_usual = gc.get_threshold()


@contextlib.contextmanager
def rarely_sought() -> Iterator[None]:
    """Collect garbage rarely within this context, or until `sought_as_usual` is called."""
    gc.set_threshold(*_AT_START)
    try:
        yield
    finally:
        sought_as_usual()


@functools.cache
def never_sought_in_imports() -> None:
    """Exclude all objects that exist now from collection.

    Only the first call in a process has an effect: later, objects that a run has left behind would be excluded too.
    """
    gc.freeze()


def sought_as_usual() -> None:
    """Restore the thresholds that were set when this module was imported."""
    gc.set_threshold(*_usual)
