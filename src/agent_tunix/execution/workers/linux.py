"""Linux kernel calls: process death and orphans, and resources in use. They do nothing on other systems."""

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
_MOST_KILLABLE = 1000

IS_LINUX = sys.platform == "linux"
_PAGE_BYTES = resource.getpagesize()
# Additional processes and threads of the same user, outside the worker.
_HEADROOM = 512

_memory_file: int | None = None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def be_killed_first() -> None:
    """Have the kernel kill this process, not the run, if memory runs out. A killed worker is replaced."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_MOST_KILLABLE))


def _prctl(option: int, argument: int) -> None:
    if IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def hold_memory_file(first_descriptor: int) -> int | None:
    """Open the file with this process's memory use, because an isolated process cannot.

    Return its descriptor, at least `first_descriptor`; None if there is no such file.
    """
    global _memory_file
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:
        _memory_file = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, first_descriptor)
    return _memory_file


def resident_bytes() -> int:
    """Return the memory that this process holds; 0 if unknown."""
    return _memory_field(1)


def data_bytes() -> int:
    """Return the private memory that this process has requested, which RLIMIT_DATA limits; 0 if unknown."""
    return _memory_field(5)


def address_bytes() -> int:
    """Return the address space that this process has requested, which RLIMIT_AS limits; 0 if unknown."""
    return _memory_field(0)


def _memory_field(place: int) -> int:
    try:
        text = Path("/proc/self/statm").read_bytes() if _memory_file is None else os.pread(_memory_file, 256, 0)
        return int(text.split()[place]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):  # users' code may have closed the file or reused its number
        return 0


def count_tasks() -> int:
    """Return the number of threads on the machine; 0 if unknown."""
    try:
        return int(Path("/proc/loadavg").read_bytes().split()[3].partition(b"/")[2])
    except OSError:
        return 0


def processes() -> Iterator[tuple[int, int, int]]:
    """Yield `(pid, parent, session)` of every visible process."""
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # The command, in parentheses, may contain anything, so fields count from its end.
                    fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                    yield int(entry.name), int(fields[1]), int(fields[3])


def children_of(parent: int) -> list[int]:
    """Return the processes with this parent, including those that ended and were not waited for."""
    return [pid for pid, its_parent, _ in processes() if its_parent == parent]


def marked_processes(mark: str) -> list[int]:
    """Return this user's processes with `mark` (`NAME=value`) in the environment they or an ancestor started with."""
    found = []
    for pid, _, _ in processes():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def has_children() -> bool:
    """Return True if this process has children. The check is cheap if it has none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, PermissionError):  # an isolated process may not ask, and cannot have any
        return False
    return True


def most_processes() -> int | None:
    """Return RLIMIT_NPROC for a worker, this user's tasks plus some; None for root, whom it does not bind."""
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
