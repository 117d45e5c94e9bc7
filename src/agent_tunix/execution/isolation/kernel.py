"""System calls that Python has no functions for.

This module and those that isolate a process import very little: they run first in the process of every sandboxed
program, which is started for every completion.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME = 1, 4, 15, 16
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
PR_SET_VMA = 0x53564D41  # the memory allocator names its mappings with this

LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int, second: int = 0) -> None:
    """Change an attribute of this process.

    Raises:
        OSError: The kernel refused.
    """
    check(LIBC.prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in (argument, second, 0, 0))), "prctl")


def syscall(number: int, *args: object) -> int:
    """Make a system call by number.

    Returns:
        The kernel's result; -1 on failure, with the reason in `ctypes.get_errno()`.
    """
    return int(LIBC.syscall(ctypes.c_long(number), *args))


def check(result: int, what: str) -> int:
    """Return the result of a call, or raise if it failed.

    Raises:
        OSError: The call failed; the error has the kernel's reason.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def is_linux() -> bool:
    """Return True on Linux."""
    return sys.platform == "linux"
