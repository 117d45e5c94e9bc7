"""Calls of the kernel that Python has no functions for.

This module and those that lock a process in import next to nothing: they are the first thing that a sandboxed program's
process runs, and it starts for every completion.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME = 1, 4, 15, 16
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
PR_SET_VMA = 0x53564D41  # by which the allocator names its memory

LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int, second: int = 0) -> None:
    """Set something about this process.

    Raises:
        OSError: The kernel refused.
    """
    check(LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in (argument, second, 0, 0))), "prctl")


def syscall(number: int, *args: object) -> int:
    """Make a call by its number.

    Returns:
        What the kernel gives; -1 where it refused, with the reason in `ctypes.get_errno()`.
    """
    return int(LIBC.syscall(ctypes.c_long(number), *args))


def check(result: int, what: str) -> int:
    """Return the result of a call, if it is no refusal.

    Raises:
        OSError: With the reason of the kernel.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def is_linux() -> bool:
    """Return True on Linux."""
    return sys.platform == "linux"
