"""The kind of the processor.

A program compiled for another kind of processor may end a process with an illegal instruction.
"""

import contextlib
import hashlib
import platform
from pathlib import Path


def processor_kind() -> str:
    """Return an identifier that is equal for processors with the same instruction set."""
    described = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        # Distinct lines only, because a machine has many cores of one or two kinds.
        described = "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
