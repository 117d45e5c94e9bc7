"""What a system must offer for uploaded code to be isolated on it."""

import ctypes
import errno
import os
import platform
import sys
from functools import cache
from pathlib import Path

from agent_tunix.errors import SandboxUnavailableError
from agent_tunix.rewards.isolation import kernel
from agent_tunix.rewards.isolation.files import landlock_version
from agent_tunix.rewards.isolation.filter import can_filter

_SETGID, _SETUID, _SYS_ADMIN = 6, 7, 21
_PASSED_BY_ALL = 0o001
_SECCOMP_MODE_FILTER = 2
REMEDY = (
    "Run it on Linux 5.13 or later (x86-64 or ARM), or, where all who can upload are trusted with everything that this"
    " user can read and do, allow it: rewards.allow_unsandboxed=true, or --allow-unsandboxed of agent-tunix serve and"
    " agent-tunix rewards"
)


def problems() -> list[str]:
    """Why uploaded code cannot be isolated here, a sentence each; [] if nothing speaks against it."""
    return list(_problems())


def require_isolation() -> None:
    """Make sure of it.

    Raises:
        SandboxUnavailableError: It cannot be had here; with the reasons and what to do.
    """
    if found := problems():
        raise unavailable("; ".join(found))


def unavailable(why: str) -> SandboxUnavailableError:
    """The error for uploaded code that cannot be isolated."""
    return SandboxUnavailableError(f"uploaded code is not run, because it cannot be isolated here: {why}. {REMEDY}")


@cache
def _problems() -> tuple[str, ...]:
    if not kernel.is_linux():
        return (f"isolation needs Linux, and this is {sys.platform}",)
    if not can_filter():
        return (f"isolation is made for x86-64 and 64-bit ARM, and this is {platform.machine()}",)
    found = []
    if not landlock_version():
        found.append(
            "the kernel has no Landlock (it has since Linux 5.13, where `lsm=` of its command line includes it)"
        )
    if not _has_seccomp():
        found.append("the kernel, or what confines this process, lets it set no seccomp filter")
    if os.geteuid() == 0:
        found += _problems_of_root()
    return tuple(found)


def _has_seccomp() -> bool:
    """A filter that lies nowhere is refused as a bad address if filters are known, and as a bad argument if not."""
    asked = [ctypes.c_ulong(value) for value in (_SECCOMP_MODE_FILTER, 0, 0, 0)]
    kernel.libc().prctl(ctypes.c_int(kernel.PR_SET_SECCOMP), *asked)
    return ctypes.get_errno() == errno.EFAULT


def _problems_of_root() -> list[str]:
    capabilities = _capabilities()
    if not (capabilities >> _SETUID & 1 and capabilities >> _SETGID & 1):
        return [
            "root has been denied changing its user (CAP_SETUID, CAP_SETGID), and uploaded code never runs as root;"
            " start it as an ordinary user"
        ]
    library = Path(os.__file__).resolve().parent
    closed = [path for path in (library, *library.parents) if not path.stat().st_mode & _PASSED_BY_ALL]
    if closed and not capabilities >> _SYS_ADMIN & 1:
        return [
            f"{closed[-1]}, where this Python lies, is closed to users without rights, as workers are, and root has"
            " been denied mounts (CAP_SYS_ADMIN); install Python where all users can read it"
        ]
    return []


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0
