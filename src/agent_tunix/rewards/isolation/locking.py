"""What a worker does before the first byte of uploaded code reaches it: give up all that the code must not have.

    root and user of its own  →  no new privileges  →  Landlock  →  limits  →  seccomp

Nothing of it can be undone. If any part that is required fails, the worker ends without having run anything.
"""

import contextlib
import os
import platform
import resource
import signal
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.rewards.isolation import kernel
from agent_tunix.rewards.isolation.files import restrict_files
from agent_tunix.rewards.isolation.filter import restrict_calls
from agent_tunix.rewards.isolation.root import WRITABLE, drop_capabilities, enter_own_namespaces, enter_own_root

MOST_FILES = 1024
MOST_DESCRIPTORS = 64
MOST_THREADS = 64
# Address space that is no memory: stacks of threads, and what the allocator sets aside.
_ADDRESSES_BYTES = 2**29
# Numbers of users that nobody has been given, one for each process: no two workers are the same user.
_FIRST_USER = 0x7000_0000
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Isolation:
    """What isolated workers may use.

    Attributes:
        scratch: A directory of this process's own, in which each worker gets one.
        readable: Absolute paths that can be read.
        memory_bytes: Beyond what a worker holds before its reward is loaded.
        disk_bytes: What a worker may have written at any time, and the largest file.
        cpu_s: Processor time of a worker, from its first to its last call.
        most_tasks: Processes and threads of the user, where workers have no user of their own; None: not known.
    """

    scratch: str
    readable: tuple[str, ...]
    memory_bytes: int
    disk_bytes: int
    cpu_s: int
    most_tasks: int | None


def lock(isolation: Isolation, directory: str, parent: int, keep: Sequence[int], used: tuple[int, int]) -> None:
    """Isolate this process, which must have one thread.

    Args:
        isolation: What it may use.
        directory: An empty directory, its own.
        parent: The process with which it is to end.
        keep: Descriptors that stay open, besides 0, 1 and 2.
        used: Bytes of address space and of private memory that this process holds.

    Raises:
        OSError: The system refused something that is required; the process must end.
        ValueError: A limit is out of range.
    """
    _close_others(keep)
    os.umask(0o022)
    is_root = os.geteuid() == 0
    user = _free_user() if is_root else os.geteuid()
    directory = _take_root(isolation, directory, user)
    if is_root:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    drop_capabilities(platform.machine())
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of user has undone
    if os.getppid() != parent:
        raise OSError("the process that keeps the workers is gone")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(directory)
    _check_reach(directory)
    restrict_files(isolation.readable, directory)
    os.environ.update(HOME=directory, TMPDIR=directory)
    tempfile.tempdir = None
    most_tasks = MOST_THREADS if is_root and user != _NOBODY else isolation.most_tasks
    os.umask(0o077)
    _limit(isolation, used, most_tasks)
    restrict_calls()


def _take_root(isolation: Isolation, directory: str, user: int) -> str:
    """The directory to write to: in a root of its own where the system gives one."""
    try:
        enter_own_namespaces()
        enter_own_root(directory, isolation.readable, isolation.disk_bytes, MOST_FILES, user, platform.machine())
    except OSError:
        if os.geteuid() == 0:
            os.chown(directory, user, user)
        return directory
    return WRITABLE


def _free_user() -> int:
    """Number of a user without rights: of this process alone, or `nobody` where the system has no such number."""
    user = _FIRST_USER + os.getpid()
    known = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return user if any(first <= user < first + count for first, _, count in known) else _NOBODY


def _check_reach(directory: str) -> None:
    """Raise OSError if the worker's user is kept from what it needs."""
    library = os.path.dirname(os.__file__)
    for path, needed in ((library, os.R_OK | os.X_OK), (directory, os.R_OK | os.W_OK | os.X_OK)):
        if not os.access(path, needed):
            raise OSError(f"{path} is out of reach of users without rights, as workers are")


def _limit(isolation: Isolation, used: tuple[int, int], most_tasks: int | None) -> None:
    address_bytes, data_bytes = used
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: isolation.cpu_s,
        resource.RLIMIT_FSIZE: isolation.disk_bytes,
        resource.RLIMIT_NOFILE: MOST_DESCRIPTORS,
        resource.RLIMIT_DATA: data_bytes + isolation.memory_bytes,
        resource.RLIMIT_AS: address_bytes + isolation.memory_bytes + _ADDRESSES_BYTES,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if most_tasks is not None:
        limits[resource.RLIMIT_NPROC] = most_tasks
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _close_others(keep: Iterable[int]) -> None:
    """Close every descriptor that was inherited by accident."""
    start = 3
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for kept in sorted(keep):
        os.closerange(start, kept)
        start = kept + 1
    with contextlib.suppress(OSError):
        os.closerange(start, highest)
