"""What the kernel is asked for: who dies with whom, who adopts orphans, what is in use. Nothing off Linux."""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

IS_LINUX = sys.platform == "linux"
_PAGE_BYTES = resource.getpagesize()
# Processes and threads of the same user that are none of a worker's.
_HEADROOM = 512

_memory_file: int | None = None


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, argument: int) -> None:
    if IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def hold_memory_file(first_descriptor: int) -> int | None:
    """Open what says how much memory this process holds, for a process that will no longer be able to.

    Args:
        first_descriptor: The lowest number that it may have.

    Returns:
        Its number; None where there is none.
    """
    global _memory_file
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:
        _memory_file = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, first_descriptor)
    return _memory_file


def resident_bytes() -> int:
    """Memory that this process holds; 0 where that is unknown."""
    return _memory_field(1)


def data_bytes() -> int:
    """Private memory that this process has asked for, which RLIMIT_DATA bounds; 0 where that is unknown."""
    return _memory_field(5)


def address_bytes() -> int:
    """Address space that this process has asked for, which RLIMIT_AS bounds; 0 where that is unknown."""
    return _memory_field(0)


def _memory_field(place: int) -> int:
    try:
        text = Path("/proc/self/statm").read_bytes() if _memory_file is None else os.pread(_memory_file, 256, 0)
        return int(text.split()[place]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):  # users' code may have closed it, and opened another file
        return 0


def count_tasks() -> int:
    """Threads on the machine; 0 where that is unknown."""
    try:
        return int(Path("/proc/loadavg").read_bytes().split()[3].partition(b"/")[2])
    except OSError:
        return 0


def processes() -> Iterator[tuple[int, int, int]]:
    """`(pid, parent, session)` of every process that can be seen."""
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # The command stands in parentheses and may itself hold anything.
                    fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                    yield int(entry.name), int(fields[1]), int(fields[3])


def children_of(parent: int) -> list[int]:
    """Processes whose parent it is, those included that ended and were not waited for."""
    return [pid for pid, its_parent, _ in processes() if its_parent == parent]


def marked_processes(mark: str) -> list[int]:
    """Processes of this user that were started with `mark` (`NAME=value`) in their environment, or forked from such."""
    found = []
    for pid, _, _ in processes():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def has_children() -> bool:
    """Whether this process has any; cheap where it has none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def most_processes() -> int | None:
    """RLIMIT_NPROC of a worker: what this user has, and some; None for root, whom it does not bind."""
    if os.geteuid() == 0 or not Path("/proc").is_dir():
        return None
    user = os.getuid()
    tasks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == user:
                    tasks += len(os.listdir(entry / "task"))
    return tasks + _HEADROOM
