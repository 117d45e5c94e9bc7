"""System requirements of isolation."""

import ctypes
import errno
import os
import sys
from pathlib import Path

from agent_tunix.errors import SandboxUnavailableError
from agent_tunix.execution.isolation import kernel
from agent_tunix.execution.isolation.files import landlock_version
from agent_tunix.execution.isolation.filter import can_filter

_KILL, _SETGID, _SETUID, _SYS_ADMIN = 5, 6, 7, 21
_PASSED_BY_ALL = 0o001
_SECCOMP_MODE_FILTER = 2
REMEDY = "Run it on Linux 5.13 or later (x86-64 or ARM)"
REMEDY_FOR_UPLOADS = (
    f"{REMEDY}, or, if you trust everyone who can upload with all permissions of this user, allow it: "
    "rewards.allow_unsandboxed=true, or --allow-unsandboxed of agent-tunix serve and agent-tunix rewards"
)


def problems() -> list[str]:
    """Return the reasons why code cannot be isolated here, one sentence each; [] if it can."""
    if not kernel.is_linux():
        return [f"isolation needs Linux, and this is {sys.platform}"]
    if not can_filter():
        return [f"isolation needs x86-64 or 64-bit ARM, and this is {os.uname().machine}"]
    found = []
    if not landlock_version():
        found.append(
            "the kernel has no Landlock (available since Linux 5.13 if `lsm=` on its command line includes it)"
        )
    if not _has_seccomp():
        found.append("seccomp filters are blocked by the kernel or by the container of this process")
    if os.geteuid() == 0:
        found += _problems_of_root()
    return found


def require_isolation(what: str, remedy: str = REMEDY) -> None:
    """Check that code can be isolated.

    Args:
        what: The code to run, for the message.
        remedy: The remedy if it cannot.

    Raises:
        SandboxUnavailableError: It cannot; the message has the reasons and the remedy.
    """
    if found := problems():
        raise unavailable(what, "; ".join(found), remedy)


def unavailable(what: str, why: str, remedy: str = REMEDY) -> SandboxUnavailableError:
    """Return the error for code that cannot be isolated."""
    return SandboxUnavailableError(
        f"{what} requires isolation, which is not available on this machine: {why}. {remedy}"
    )


def _has_seccomp() -> bool:
    """Return True if seccomp filters are supported: setting one at a null address fails with EFAULT, not EINVAL."""
    asked = [ctypes.c_ulong(value) for value in (_SECCOMP_MODE_FILTER, 0, 0, 0)]
    kernel.LIBC.prctl(ctypes.c_int(kernel.PR_SET_SECCOMP), *asked)
    return ctypes.get_errno() == errno.EFAULT


def _problems_of_root() -> list[str]:
    capabilities = effective_capabilities()
    if not capabilities >> _KILL & 1:
        return [
            "isolation as root requires CAP_KILL, to end isolated processes, but it is missing; start the process as "
            "an ordinary user"
        ]
    if not (capabilities >> _SETUID & 1 and capabilities >> _SETGID & 1):
        return [
            "isolation as root requires CAP_SETUID and CAP_SETGID, because code of others never runs as root, but "
            "they are missing; start the process as an ordinary user"
        ]
    library = Path(os.__file__).resolve().parent
    closed = [path for path in (library, *library.parents) if not path.stat().st_mode & _PASSED_BY_ALL]
    if closed and not capabilities >> _SYS_ADMIN & 1:
        return [
            "isolation as root requires a Python that unprivileged workers can read, or CAP_SYS_ADMIN to mount it, "
            f"but {closed[-1]} is closed to them; install Python where all users can read it"
        ]
    return []


def effective_capabilities() -> int:
    """Return the effective capabilities of this process as a bit mask."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0
