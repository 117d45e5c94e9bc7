"""The steps by which a process gives up its rights before it reads untrusted code.

    own root and user  →  no new privileges  →  Landlock  →  limits  →  seccomp

The steps are irreversible. If a required one fails, the process exits without running anything.
"""

import os
import resource
import signal

from agent_tunix.execution.isolation import kernel
from agent_tunix.execution.isolation.files import restrict_files
from agent_tunix.execution.isolation.filter import restrict_calls
from agent_tunix.execution.isolation.root import WORKING, drop_capabilities, enter_own_namespaces, enter_own_root

MOST_DESCRIPTORS = 64
# User ids that are assigned to nobody, one per process: no two isolated processes share a user.
_FIRST_USER = 0x7000_0000
_NOBODY = 65534


def lock(
    readable: tuple[str, ...],
    place: str,
    *,
    parent: int,
    keep: tuple[int, ...],
    limits: dict[int, int],
    most_threads: int,
    most_tasks: int | None,
    disk_bytes: int = 0,
    most_files: int = 0,
) -> None:
    """Isolate this process, which must have only one thread.

    Args:
        readable: Absolute paths that it may read.
        place: Mount point for its own root directory. If the process may write, it must be an empty directory that only
            this process uses.
        parent: Id of the process with which it must end.
        keep: Descriptors that stay open, besides 0, 1 and 2.
        limits: Resource limits by their number in `resource`, in addition to the common ones.
        most_threads: Maximum number of threads, if the process gets its own user.
        most_tasks: Maximum number of processes and threads of the user, if the process gets no user of its own; None
            for no limit.
        disk_bytes: Bytes that it may write to its working directory; 0 if it may not write at all.
        most_files: Number of files that it may create there.

    Raises:
        OSError: The system refused a required step; the process must exit.
        ValueError: A limit is out of range.
    """
    _close_others(keep)
    os.umask(0o022)
    is_root = os.geteuid() == 0
    user = _free_user() if is_root else os.geteuid()
    working = _take_root(readable, place, user, disk_bytes, most_files)
    if is_root:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    drop_capabilities()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has reset this
    if os.getppid() != parent:
        raise OSError("the parent process has ended")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    os.chdir(working)
    _check_reach(working if disk_bytes else None)
    readable_too = (working,) if working == WORKING else ()
    # A removed file that is still open or mapped takes space that only a directory in memory limits.
    may_remove = working == WORKING
    restrict_files((*readable, *readable_too), working if disk_bytes else None, may_remove=may_remove)
    os.environ.update(HOME=working, TMPDIR=working)
    os.umask(0o077)
    tasks = most_threads if is_root and user != _NOBODY else most_tasks
    _limit(limits if tasks is None else limits | {resource.RLIMIT_NPROC: tasks})
    restrict_calls()


def _take_root(readable: tuple[str, ...], place: str, user: int, disk_bytes: int, most_files: int) -> str:
    """Return the working directory, which is in a root of its own if the system allows one."""
    try:
        enter_own_namespaces()
        enter_own_root(place, readable, disk_bytes, most_files, user)
    except OSError:
        if not disk_bytes:
            return "/"
        if os.geteuid() == 0:
            os.chown(place, user, user)
        return place
    return WORKING


def _free_user() -> int:
    """Return an unprivileged user id: unique to this process, or that of `nobody` if unique ids are not available."""
    user = _FIRST_USER + os.getpid()
    with open("/proc/self/uid_map") as file:
        known = [tuple(map(int, line.split())) for line in file]
    return user if any(first <= user < first + count for first, _, count in known) else _NOBODY


def _check_reach(writable: str | None) -> None:
    """Raise OSError if the process's user cannot access what it needs."""
    needed = [(os.path.dirname(os.__file__), os.R_OK | os.X_OK)]
    if writable is not None:
        needed.append((writable, os.R_OK | os.W_OK | os.X_OK))
    for path, rights in needed:
        if not os.access(path, rights):
            raise OSError(f"{path} cannot be read by unprivileged users, as which isolated processes run")


def _limit(limits: dict[int, int]) -> None:
    same = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: MOST_DESCRIPTORS,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for limit, value in (same | limits).items():
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def _close_others(keep: tuple[int, ...]) -> None:
    """Close every inherited descriptor except those to keep."""
    start = 3
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for kept in sorted(keep):
        os.closerange(start, kept)
        start = kept + 1
    os.closerange(start, max(start, highest))
