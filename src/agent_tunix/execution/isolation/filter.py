"""System calls that an isolated process may make, enforced by a seccomp filter until the process ends.

The filter is a list of allowed calls, by number and arguments. It allows computing, files (restricted by Landlock and
the process's own root), threads, socket pairs between the process's own threads (an event loop has one), and reading
and writing open descriptors. A call that is not listed fails with EPERM. A call newer than the list fails with ENOSYS,
as on an older kernel.

Restrictions on arguments:

- `clone` creates only threads; `clone3`, whose arguments a filter cannot read, fails with ENOSYS;
- `fcntl` and `ioctl` cannot set an owner, signal, lease or notification for a file, or query devices;
- `prctl` only sets and reads names, so the signal on the parent's death stays set;
- `prlimit64` and `sched_getaffinity` only read, and only about the process itself;
- `open` cannot use O_PATH, O_TMPFILE, O_SYNC, O_ASYNC or O_DIRECT, or truncate a file opened for reading; `fcntl`
  cannot set such flags later;
- `fallocate` cannot reserve space beyond a file's size; clocks are the system's, not another process's;
- sockets take no address or out-of-band data, and do not reveal who is at the other end;
- `mmap` cannot use huge pages; `futex` has no priority inheritance; `pipe2` cannot create a watch queue.
"""

import ctypes
import os
import struct

from agent_tunix.execution.isolation import kernel

# Classic BPF, as used by seccomp: operation, jump if true, jump if false, operand.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050000 | 38, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_MODE_FILTER = 2
_X32 = 0x40000000
_FIRST_UNKNOWN = 451
_ALL_BITS = 0xFFFFFFFF

Instruction = tuple[int, int, int, int]

# Architectures by their `uname` name: number in the kernel's audit, and column in the tables below.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Number of each call on x86-64 and on 64-bit ARM; None if it does not exist.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # descriptors and files
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70),
    "sendfile": (40, 71), "copy_file_range": (326, 285), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "getdents": (78, None), "getdents64": (217, 61), "statfs": (137, 43), "fstatfs": (138, 44),
    "rename": (82, None), "renameat": (264, 38), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "symlink": (88, None), "symlinkat": (266, 36), "ftruncate": (77, 46),
    "fsync": (74, 82), "fdatasync": (75, 83), "umask": (95, 166),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "eventfd": (284, None),
    "eventfd2": (290, 19), "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441), "shutdown": (48, 210), "getsockname": (51, 204),
    "getpeername": (52, 205),
    # memory
    "brk": (12, 214), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "msync": (26, 227),
    # the process itself and its threads
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getpgrp": (111, None), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158),
    "getresuid": (118, 148), "getresgid": (120, 150), "set_tid_address": (218, 96), "set_robust_list": (273, 99),
    "rseq": (334, 293), "sched_yield": (24, 124), "getcpu": (309, 168), "exit": (60, 93), "exit_group": (231, 94),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "pause": (34, None), "getrusage": (98, 165), "getrlimit": (97, 163),
    # time and the system
    "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103), "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None), "times": (100, 153), "uname": (63, 160), "sysinfo": (99, 179), "getrandom": (318, 278),
}  # fmt: skip

_CLONE3 = (435, 435)

# Flags of `clone` for a thread, without and with a flag that no longer has an effect.
_THREAD = (0x003D0F00, 0x007D0F00)
# Copying, flags and locks of a descriptor.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
_F_SETFL = 4
# Requests about files and terminals: attributes, size, readable bytes, blocking, inheritance.
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_PRCTL = (kernel.PR_SET_NAME, kernel.PR_GET_NAME, kernel.PR_SET_VMA)
_MMAP = 0x0013D873
_MADVISE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 102, 103)
_FUTEX = (0, 1, 3, 4, 5, 9, 10)
_FUTEX_OPERATION = 0x7F
_AF_UNIX = 1
_SOL_SOCKET, _SOCKET_OPTIONS = 1, (3, 4, 7, 8, 30, 38, 39)
_MSG_SEND, _MSG_RECEIVE = 0x4040, 0x4000_0162
# Advice, except the one that evicts pages that other processes read too.
_FADVISE = (0, 1, 2, 3, 5)
# Clocks that do not belong to a process.
_CLOCKS = tuple(range(12))
# O_LARGEFILE of both architectures; each is O_NOFOLLOW on the other.
_O_LARGEFILE = 0o100000 | 0o400000
_OPEN = (
    os.O_ACCMODE | os.O_CREAT | os.O_EXCL | os.O_NOCTTY | os.O_TRUNC | os.O_APPEND | os.O_NONBLOCK
    | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
)  # fmt: skip
_SETFL = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK


def can_filter() -> bool:
    """Return True if there is a filter for this architecture."""
    return kernel.is_linux() and os.uname().machine in _ARCHITECTURES


def restrict_calls() -> None:
    """Set the filter for this process irreversibly. It needs `PR_SET_NO_NEW_PRIVS`.

    Raises:
        OSError: The kernel refused, or the architecture has no filter.
    """
    if not can_filter():
        raise OSError(f"the seccomp filter supports only Linux on {' and '.join(_ARCHITECTURES)}")
    program = make_program(os.uname().machine)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))


def make_program(machine: str) -> list[Instruction]:
    """Return the filter program for an architecture, by its `uname` name."""
    audit, place = _ARCHITECTURES[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        (_AT_LEAST, 1, 0, _FIRST_UNKNOWN),
        (_EQUAL, 0, 1, _CLONE3[place]),
        (_RETURN, 0, 0, _ENOSYS),
    ]
    for first, last in _runs([numbers[place] for numbers in _ALLOWED.values()]):
        program += [(_AT_LEAST, 0, 2, first), (_AT_LEAST, 1, 0, last + 1), (_RETURN, 0, 0, _ALLOW)]
    for numbers, conditions in _conditional():
        number = numbers[place]
        if number is not None:
            block = [*conditions, (_RETURN, 0, 0, _ALLOW)]
            program += [(_EQUAL, 0, len(block), number), *block]
    return [*program, (_RETURN, 0, 0, _EPERM)]


def _conditional() -> list[tuple[tuple[int | None, int | None], list[Instruction]]]:
    """Return the calls whose arguments are restricted, each with the conditions on them."""
    opening = _OPEN | _O_LARGEFILE
    return [
        ((56, 220), _among(0, _THREAD)),
        ((2, None), _within(1, opening) + _not(1, os.O_TRUNC | os.O_ACCMODE, os.O_TRUNC)),
        ((257, 56), _within(2, opening) + _not(2, os.O_TRUNC | os.O_ACCMODE, os.O_TRUNC)),
        ((9, 222), _within(3, _MMAP)),
        ((28, 233), _among(2, _MADVISE)),
        ((202, 98), _among(1, _FUTEX, _FUTEX_OPERATION)),
        # The third argument of F_SETFL is flags; that of other commands is a number or an address.
        ((72, 25), _among(1, _FCNTL) + _skip_unless(1, _F_SETFL, _within(2, _SETFL | _O_LARGEFILE))),
        ((16, 29), _among(1, _IOCTL)),
        ((157, 167), _among(0, _PRCTL)),
        ((302, 261), _among(0, (0,)) + _null(2)),  # prlimit64
        ((204, 123), _among(0, (0,))),  # sched_getaffinity
        ((53, 199), _among(0, (_AF_UNIX,))),  # socketpair
        ((44, 206), _null(4) + _within(3, _MSG_SEND)),  # sendto
        ((45, 207), _within(3, _MSG_RECEIVE)),  # recvfrom
        ((47, 212), _within(2, _MSG_RECEIVE)),  # recvmsg
        ((55, 209), _among(1, (_SOL_SOCKET,)) + _among(2, _SOCKET_OPTIONS)),  # getsockopt
        ((293, 59), _within(1, os.O_CLOEXEC | os.O_NONBLOCK)),  # pipe2
        ((285, 47), _among(1, (0,))),  # fallocate, without the mode that reserves space beyond the end of a file
        ((221, 223), _among(3, _FADVISE)),
        ((327, 286), _among(5, (0,))),  # preadv2 and pwritev2
        ((328, 287), _among(5, (0,))),
        ((230, 115), _among(0, _CLOCKS)),  # clock_nanosleep, clock_gettime and clock_getres
        ((228, 113), _among(0, _CLOCKS)),
        ((229, 114), _among(0, _CLOCKS)),
        ((436, 436), _among(2, (0, 4))),  # close_range, which may also set FD_CLOEXEC
        ((316, 276), _among(4, (0, 1))),  # renameat2, which may also refuse to replace
    ]


def _runs(numbers: list[int | None]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in sorted(number for number in numbers if number is not None):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


# Conditions: instructions that refuse the call, or continue with those that follow.


def _load(argument: int, half: int = 0) -> Instruction:
    """Load the lower or upper half of an argument: both architectures are little-endian."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + 4 * half)


def _among(argument: int, values: tuple[int, ...], mask: int = _ALL_BITS, half: int = 0) -> list[Instruction]:
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load(argument, half), (_AND, 0, 0, mask), *tests, (_RETURN, 0, 0, _EPERM)]


def _null(argument: int) -> list[Instruction]:
    return _among(argument, (0,)) + _among(argument, (0,), half=1)


def _within(argument: int, mask: int) -> list[Instruction]:
    return [_load(argument), (_ANY_BIT, 0, 1, _ALL_BITS & ~mask), (_RETURN, 0, 0, _EPERM)]


def _not(argument: int, mask: int, value: int) -> list[Instruction]:
    return [_load(argument), (_AND, 0, 0, mask), (_EQUAL, 0, 1, value), (_RETURN, 0, 0, _EPERM)]


def _skip_unless(argument: int, value: int, conditions: list[Instruction]) -> list[Instruction]:
    return [_load(argument), (_EQUAL, 0, len(conditions), value), *conditions]
