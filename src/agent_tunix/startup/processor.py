"""Which kind of processor this is, for a program compiled for another may end a process with an illegal instruction.

And how many there are.
"""

import contextlib
import hashlib
import os
import platform
from pathlib import Path


def processor_kind() -> str:
    """A word for this kind of processor: the same for all that have the same instructions."""
    described = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        # Those of all cores, and not of each: a machine's cores are of one or two kinds.
        described = "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def num_processors() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
