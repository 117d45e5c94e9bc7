"""Program that runs a command and leaves nothing of it behind.

When the command ends, when this program is terminated, or when its parent ends, it kills every process that the command
has started, in any session. The command has this program's standard input, output and error.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from agent_tunix.execution.workers import linux

_TICK_S = 0.2
_NOT_FOUND = 127


def kept(command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command in this program."""
    root = str(Path(__file__).parents[3])
    boot = f"import sys; sys.path.insert(0, {root!r}); from {__name__} import main; main(sys.argv[1:])"
    return [sys.executable, "-I", "-c", boot, *command]


def main(command: Sequence[str]) -> NoReturn:
    """Run a command; end with its status."""
    linux.adopt_orphans()
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_FOUND)
    try:
        while os.getppid() == parent:
            try:
                sys.exit(process.wait(_TICK_S))
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()
        while left := linux.children_of(os.getpid()):
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    sys.exit(1)
