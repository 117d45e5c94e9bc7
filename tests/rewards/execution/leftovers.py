"""Inventory of what this process holds and has started, to be compared before and after."""

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

# Followed by the process that the workers belong to.
_MARK = "AGENT_TUNIX_WORKERS={}-"


class Holdings(NamedTuple):
    """Descriptors by what they lead to, threads by name, and processes, the workers' descendants included."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]
    processes: tuple[str, ...]


def take_stock() -> Holdings:
    """Return what there is now."""
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            # Sockets and pipes bear numbers that differ every time.
            descriptors.append(os.readlink(entry).partition("[")[0])
    threads = sorted(thread.name for thread in threading.enumerate())
    return Holdings(tuple(sorted(descriptors)), tuple(threads), tuple(sorted(_processes())))


def workers_and_descendants(owner: int | None = None) -> list[str]:
    """Return every process that began in a pool of workers of a process, of this one if none is named."""
    return sorted(_marked(owner or os.getpid()))


def check_nothing_left(before: Holdings) -> None:
    """Wait until all there is was there before.

    What others held before may go meanwhile: a thread of an earlier run, say, ends when that run is collected.
    """

    def left() -> list[str]:
        pairs = zip(take_stock(), before, strict=True)
        return [thing for now, then in pairs for thing in (Counter(now) - Counter(then)).elements()]

    wait_until(lambda: left() == [])
    assert left() == []


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; only what hangs keeps it from coming true in a minute."""
    deadline = time.monotonic() + 60.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _processes() -> Iterator[str]:
    """Yield the children of this process and what bears its mark."""
    own = {int(pid) for pid in _marked(os.getpid())}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                values = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(values[1]) == os.getpid() or int(entry.name) in own:
                    yield f"{entry.name} {(entry / 'cmdline').read_bytes()!r}"


def _marked(owner: int) -> Iterator[str]:
    mark = _MARK.format(owner).encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    yield entry.name
