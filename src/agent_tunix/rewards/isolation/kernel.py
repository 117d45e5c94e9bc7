"""Calls of the kernel that Python has no functions for."""

import ctypes
import os
import sys
from functools import cache
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME = 1, 4, 15, 16
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
PR_SET_VMA = 0x53564D41  # by which the allocator names its memory


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int, second: int = 0) -> None:
    """Set something about this process.

    Raises:
        OSError: The kernel refused.
    """
    check(libc().prctl(ctypes.c_int(option), *(ctypes.c_ulong(value) for value in (argument, second, 0, 0))), "prctl")


def syscall(number: int, *args: Any) -> int:
    """Make a call by its number.

    Returns:
        What the kernel gives; -1 where it refused, with the reason in `ctypes.get_errno()`.
    """
    return int(libc().syscall(ctypes.c_long(number), *args))


def check(result: int, what: str) -> int:
    """The result of a call, if it is no refusal.

    Raises:
        OSError: With the reason of the kernel.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def is_linux() -> bool:
    """Whether this is Linux."""
    return sys.platform == "linux"
